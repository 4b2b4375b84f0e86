"""Runs a whole training to its end, recovers from faults, and watches speed and memory.

May import `display` and the rooms below. A search does not use it.
"""
