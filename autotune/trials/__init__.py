"""One trial, from order to measurement: what it may take (`setup`), its process, its clock; a race.

Imports `storage` and the rooms below.
Knows of no search and of no Ray.
"""
