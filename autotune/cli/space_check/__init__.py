"""`check`: runs the baseline of a search space briefly, as a search would, and says what a search would see.

`runs` runs it; `seen` and `findings` are pure.
"""
