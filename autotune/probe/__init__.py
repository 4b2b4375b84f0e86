"""Finds the settings of a training by running its command line briefly, and watching what it does.

`watching` runs it; `options`, `effects`, `scores` and `proposal` are pure; `command` puts them together.
"""
