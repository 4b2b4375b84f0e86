"""Any command line as a workload: a training script that knows nothing of the tuner.

`spec` is what the user writes. `line` makes a command line from it and the settings, and `process` runs it.
`readers` finds figures in what it writes, and `ending` says what its end means. `training` makes
records of all this, `script` exports it, and `workload` is the workload.
"""
