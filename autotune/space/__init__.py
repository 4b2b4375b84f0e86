"""The search space: YAML in, configurations out. `machine` drops what a given machine cannot run.

May import `core`, `system` and `workloads`. It knows no results of trials.
"""
