"""Models for each precision: trained, scored on the test split, and kept; which precision to take.

Imports `display` and the rooms below.
Is no part of a search.
"""
