"""What a session has found, to be read: one HTML file, JSON or Markdown."""
