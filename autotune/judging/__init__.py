"""Trials in, decisions out: ranking, stopping, races, kept quality (`quality`), claims. Pure.

Imports `space`, `memory` and `core`.
Reads no file, starts nothing, asks no clock.
"""
