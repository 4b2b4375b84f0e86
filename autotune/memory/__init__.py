"""Predicts which configurations fit in memory, from their needs and from measured peaks. Pure.

May import `core`. It reads no file and queries no machine.
"""
