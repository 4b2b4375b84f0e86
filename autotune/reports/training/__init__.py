"""Writes what a whole training has come to as one HTML file, JSON or Markdown, like a session's report."""
