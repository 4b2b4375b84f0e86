"""The command line. `cli` lists the commands; `cli_run` joins search, engine and trackers.

Imports every room.
Nobody imports it but `__main__`.
"""
