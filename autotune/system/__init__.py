"""The machine: its memory, CPUs and GPUs, what a trial and others use of them, and the guardian.

May import `core`.
It knows of no search and decides nothing. `cli.prepare` looks up packages and compilers, and `cli.gpus` asks
torch what it can do with a GPU.
"""
