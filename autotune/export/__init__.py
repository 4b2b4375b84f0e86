"""Writes the winner as a file that a trainer reads.

`winner` is what there is to write, `names` finds out what its settings mean, and `said` translates them for
a framework. Each framework has a module here; a workload writes what its own trainer reads (`exported`).
`formats` lists both.
May import `display` and the rooms below, but no framework: a format is plain data.
"""
