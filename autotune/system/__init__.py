"""The machine: memory, CPUs and GPUs, their use by a trial and by others, and the guardian.

May import `core`. It knows of no search and decides nothing. `sessions.prepare` looks up packages and
compilers, and `sessions.gpus` asks torch what it can do with a GPU.
"""
