"""The machine and its processes: what there is, what a trial and others take of it, who ends what is left.

Imports `core`.
Knows of no search; asks the machine, and decides nothing. Which packages and compilers there are is asked
in `cli.prepare`, what torch can do with a GPU in `cli.gpus`.
"""
