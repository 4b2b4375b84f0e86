"""What may be tried: YAML in, configurations out. `machine` drops what a given machine cannot run.

May import `core`, `system` and `workloads`.
It knows no trial's result.
"""
