"""`python -m lab gpu`: checks in ten minutes whether the GPUs of this machine do what a search relies on.

`check` has the table of points and runs them; `verdicts` judges what they find, purely; `small_trainings`
has what they train besides the published model.
"""
