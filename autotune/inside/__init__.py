"""Code that runs inside a user's training: sends records to the tuner, and asks it whether to stop.

May import only the standard library, because any training may import it. `site` runs in a script's own
Python, which need not have the tuner installed.
"""
