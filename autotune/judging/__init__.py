"""Judges trials: `measurement`, the `decisions` that follow from it, and `accounts` of both. Pure.

May import `space`, `memory` and `core`. `trials.failures` finds out why a trial failed.
"""
