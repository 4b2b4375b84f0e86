"""Finds the settings of a training by running its command line briefly and watching what it does.

`watching` and `runs` run it; `options`, `effects`, `scores` and `proposal` are pure; `command` combines them.
"""
