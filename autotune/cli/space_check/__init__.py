"""`check`: short runs of a search space's baseline, as the search would run them, and what it would see.

`runs` runs them; `seen` and `findings` are pure.
"""
