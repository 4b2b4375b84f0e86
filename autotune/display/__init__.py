"""A search as text, as a picture, as JSON lines, and what it means in words.

Imports `search` and the rooms below.
Changes nothing; `status` needs neither Optuna nor Ray.
"""
