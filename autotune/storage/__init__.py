"""The session directory: every path and every format of a file in it.

Imports `judging` and the rooms below.
Starts nothing; `study_file` reads a study without Optuna.
"""
