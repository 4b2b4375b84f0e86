"""`init`: analyzes a training project without training, and writes a first search space.

It reads text and syntax trees. Only `helped` runs the script, with `--help`.
"""
