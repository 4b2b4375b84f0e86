"""Writes the winner as a file that a trainer reads.

`winner` is the trial to write, and `formats` lists all formats: `own_file` of the workload and `file` of each
framework describe the file that its trainer reads. `patch` edits a user's file.
May import `display` and the rooms below, but no framework: a format is plain data.
"""
