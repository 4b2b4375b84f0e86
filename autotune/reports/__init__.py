"""Writes the results of a session or a whole training as one HTML file, JSON or Markdown."""
