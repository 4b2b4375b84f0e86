"""Any command line as a workload: a training script that knows nothing of the tuner.

`spec` is what the user writes. `line` makes a command line from it and the settings, and `process` runs it.
`stream` and `scores` read its output and files, and `ending` classifies its exit. `training` turns all this
into records, for the `Workload` in `workload`.
"""
