"""Writes the results of a session or a whole training as one HTML file, JSON or Markdown.

May import the rooms below. Measures nothing and changes no trial.
"""
