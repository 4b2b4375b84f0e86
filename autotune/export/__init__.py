"""Writes the winner as a file that a trainer reads.

`winner` is the trial to write, `frameworks` translates it for a framework's trainer, and `formats` lists all
formats. The config of a workload's own trainer is its `own_file`. `patch` edits a user's file.
May import `display` and the rooms below, but no framework: a format is plain data.
"""
