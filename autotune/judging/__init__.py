"""Trials in, decisions out: history, ranking, stopping, races, claims, ablation. Pure.

Imports `space`, `memory` and `core`.
Reads no file, starts nothing, asks no clock.
"""
