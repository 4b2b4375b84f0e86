"""Predicts what fits in memory: needs, peaks, and the border of what fits. Pure.

May import `core`.
It reads no file and asks no machine.
"""
