"""Any command line as a workload: a training script that knows nothing of the tuner."""
