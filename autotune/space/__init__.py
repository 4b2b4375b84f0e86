"""What may be tried: YAML in, configurations out, as far as this machine can run them.

Imports `core`, `system` and `workloads`.
Knows of no trial's result.
"""
