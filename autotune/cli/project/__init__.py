"""`init`: what can be known of somebody's training project without running it, as a first search space.

All is read from text and syntax trees; `helped` alone runs the script, and only to ask for its `--help`.
"""
