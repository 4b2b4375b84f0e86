"""Assembles a search from the rooms below: `start` opens a session, `run` runs it to its end."""
