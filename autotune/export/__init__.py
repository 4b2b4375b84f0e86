"""Writes the winner as a file that a trainer reads.

`winner` is what there is to write, `names` finds out what its settings mean, and `said` puts them into a
framework's own words. Each framework has a module here; what a workload's own trainer reads, the workload
writes (`exported`). `formats` lists both.
May import `display` and the rooms below, but no framework: a format is plain data.
"""
