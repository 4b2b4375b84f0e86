"""The command line. `cli` lists the commands; `cli_run` joins search, engine and trackers.

`prepare` and `gpus` ask the machine what it can run.
May import every room. No room imports it; only `__main__` does.
"""
