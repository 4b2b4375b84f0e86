"""What a session has found, to be read: one HTML file, JSON or Markdown.

Imports every room but `cli`.
Measures nothing and changes no trial.
"""
