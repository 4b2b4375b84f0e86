"""The session directory: all paths in it, and the format of every file.

May import `judging` and the rooms below. `study_file` reads a study without Optuna; `studies` writes one with
it. It starts no process.
"""
