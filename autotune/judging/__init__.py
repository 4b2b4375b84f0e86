"""Trials in, judgement out: `measurement`, the `decisions` that follow from it, and `accounts` of both. Pure.

May import `space`, `memory` and `core`.
It reads no file, starts nothing and asks no clock. `trials.failures` finds out why a trial failed.
"""
