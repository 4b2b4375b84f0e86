"""The machine: memory, CPUs and GPUs, their use by a trial and by others, and the guardian."""
