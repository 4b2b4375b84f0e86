"""Writes the winner as a file that a trainer reads; needs no framework, since a format is plain data."""
