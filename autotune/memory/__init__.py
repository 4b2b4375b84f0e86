"""What fits in memory, known before it runs: needs, peaks, the border. Pure.

Imports `core`.
Reads no file and asks no machine.
"""
