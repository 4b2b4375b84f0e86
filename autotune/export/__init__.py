"""The winner as a file that a trainer reads.

Imports `display` and the rooms below.
A trainer's own format is its workload's to write; this room has the YAML of all others.
"""
