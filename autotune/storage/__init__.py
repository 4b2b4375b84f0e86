"""The session directory: all paths in it, and the format of every file."""
