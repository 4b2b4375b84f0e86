"""`python -m lab gpu`: checks in ten minutes whether this machine's GPUs behave as a search assumes.

`check` lists and runs the points; `verdicts` judges their results, purely; `small_trainings` has the
workloads besides the published model.
"""
