"""Decides what runs next, takes in the results, and says when a search is over.

May import `trials` and the rooms below. It starts no process and draws nothing.
"""
