"""Workloads: the function `fit(settings, workdir)` or the command that is tuned, and facts about it.

May import `inside` and `core`; only `r2gen` imports the trainer. `registry` finds a workload by its name.
It starts no trial.
"""
