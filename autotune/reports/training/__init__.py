"""What a whole training has come to, as the report of a session is: one HTML file, JSON or Markdown."""
