"""`check`: runs the baseline of a search space briefly, and reports what a search would see.

`runs` runs it; `seen` and `findings` are pure.
"""
