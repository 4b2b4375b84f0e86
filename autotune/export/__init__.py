"""The winner as a file that a trainer reads.

Imports `display` and the rooms below.
Writes no other format than the workload's own or YAML.
"""
