"""Searches over recorded runs: tables, recording them, simulation, rival strategies, scores.

Imports `search` and the rooms below.
Is no part of a real search.
"""
