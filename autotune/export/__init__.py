"""Writes the winner as a file that a trainer reads.

`winner` is what there is to write, `names` finds out what its settings mean, and `said` translates them for
a framework. Each framework has a module here; what a workload's own trainer reads is
its `own_file`. `formats` lists both.
May import `display` and the rooms below, but no framework: a format is plain data.
"""
