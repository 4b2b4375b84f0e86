"""The command line: what was given becomes values, and the rooms are put to work.

Imports every room.
Nobody imports it but `__main__`.
"""
