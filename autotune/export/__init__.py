"""Writes the winner as a file that a trainer reads.

`winner` is the trial to write, and `formats` lists all formats. The config of a workload's own trainer is its
`own_file`, a framework's is its `file`. `patch` edits a user's file.
May import `display` and the rooms below, but no framework: a format is plain data.
"""
