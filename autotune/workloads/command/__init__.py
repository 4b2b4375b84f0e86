"""Any command line as a workload: a training script that knows nothing of the tuner.

`spec` is what the user writes, `line` makes a command line of it and of settings, `process` runs that,
`readers` and `binary` find figures in what it writes, `ending` says what its end means, `training` makes
records of it all, and `script` exports it. `workload` is the workload.
"""
