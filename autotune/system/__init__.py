"""The machine: its memory, CPUs and GPUs, what a trial and others use of them, and the guardian.

May import `core`. It knows of no search and decides nothing. Packages and compilers are looked up in
`cli.prepare`, and what torch can do with a GPU in `cli.gpus`.
"""
