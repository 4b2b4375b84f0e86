"""What runs next, what came of it, and when a search is over.

Imports `trials` and the rooms below.
Starts no process and draws nothing.
"""
