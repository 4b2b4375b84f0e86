"""Writes the report of a whole training as one HTML file, JSON or Markdown, like a session's."""
