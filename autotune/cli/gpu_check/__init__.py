"""`doctor --gpu`: whether all that a search relies on holds on the GPUs of this machine, in ten minutes.

`check` has the table of points, and runs them. What they find is judged in `verdicts`, purely; what they
train besides the published model is in `small_trainings`.
"""
