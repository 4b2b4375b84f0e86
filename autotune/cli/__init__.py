"""The command line. `cli` lists the commands; `cli_run` joins search, engine and trackers.

`prepare` and `gpus` determine what the machine can run.
May import every room. No room imports it; only `__main__` does.
"""
