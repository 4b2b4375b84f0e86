"""Decides what runs next, takes in the results, and ends the search.

May import `trials` and the rooms below. It starts no process and prints nothing.
"""
