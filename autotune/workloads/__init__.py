"""Workloads: what is tuned, a function `fit(settings, workdir)` or a command, and what is known of it.

May import `inside` and `core`; only `r2gen` imports the trainer. `registry` finds a workload by its name.
It starts no trial.
"""
