"""Assembles a search from the rooms below: `start` opens a session, `run` runs it to its end.

`prepare`, `gpus` and `option_values` check the user's request and this machine before anything starts.
"""
