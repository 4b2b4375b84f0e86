"""Searches over recorded runs: recording, tables, simulation, rival strategies, scores.

May import `search` and the rooms below.
A real search does not use it.
"""
