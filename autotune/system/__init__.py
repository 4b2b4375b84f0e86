"""The machine: memory, CPUs and GPUs, their use by a trial and by others, and the guardian.

May import `core`. It knows of no search and decides nothing. Packages and compilers are looked up in
`sessions.prepare`, and what torch can do with a GPU in `sessions.gpus`.
"""
