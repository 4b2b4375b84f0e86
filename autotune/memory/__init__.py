"""Predicts which configurations fit in memory: their needs, peaks, and the border of what fits. Pure.

May import `core`. It reads no file and queries no machine.
"""
