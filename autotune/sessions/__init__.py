"""Puts a search together from the rooms below: `start` opens a session, `run` runs it to its end.

`prepare`, `gpus` and `option_values` check what the user asks for, and this machine, before anything starts.
"""
