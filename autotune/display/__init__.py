"""Shows a search as text, as a picture and as JSON lines, and explains its results.

May import `searcher` and the rooms below. It changes nothing, and what `status` uses of it imports neither
Optuna nor Ray.
"""
