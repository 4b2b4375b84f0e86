"""The machine: memory, CPUs and GPUs, their use by a trial and by others, and the guardian.

May import `core`. It knows of no search and decides nothing. `cli.prepare` looks up packages and compilers,
and `cli.gpus` asks torch what it can do with a GPU.
"""
