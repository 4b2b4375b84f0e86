"""Writes the winner as a file that a trainer reads.

`winner` is what there is to write, `frameworks` translates it for a framework's trainer, and `formats` lists
every format; what a workload's own trainer reads is its `own_file`. `patch` edits a file of the user's.
May import `display` and the rooms below, but no framework: a format is plain data.
"""
