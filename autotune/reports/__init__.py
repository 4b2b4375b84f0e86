"""Writes what a session or a whole training has found as one HTML file, JSON or Markdown.

May import every room but `cli`.
It measures nothing and changes no trial.
"""
