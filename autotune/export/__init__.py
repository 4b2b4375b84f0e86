"""The winner as a file that a trainer reads.

`winner` is what there is to write, `names` finds out what its settings mean, and `said` puts them into a
framework's own words. Each format has a module; `formats` lists them.
Imports `display` and the rooms below, and no framework: a format is plain data.
"""
