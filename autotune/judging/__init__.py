"""Trials in, decisions out: ranking, early stopping (`stopping`), races, kept quality, claims. Pure.

May import `space`, `memory` and `core`.
It reads no file, starts nothing and asks no clock. `trials.failures` finds out why a trial failed.
"""
