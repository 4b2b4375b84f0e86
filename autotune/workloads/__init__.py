"""Workloads: the function `fit(settings, workdir)` or the command that is tuned, and facts about it."""
