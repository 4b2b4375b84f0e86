"""`check`: runs the baseline of a search space briefly, and reports what a search would see.

`command` runs it; `findings` is pure.
"""
