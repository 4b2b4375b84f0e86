"""One trial, from order to measurement: its process, its clock, its records; a race of several.

Imports `storage` and the rooms below.
Knows of no search and of no Ray.
"""
