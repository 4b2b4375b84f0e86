"""Trains and scores models in each precision, and decides which precision to take.

May import `display` and the rooms below. A search does not use it.
"""
