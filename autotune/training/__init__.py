"""Runs a whole training to its end, recovers from faults, and watches speed and memory."""
