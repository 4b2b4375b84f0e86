"""`init`: finds out about a training project without running it, and writes a first search space.

It reads text and syntax trees. Only `helped` runs the script, to ask for its `--help`.
"""
