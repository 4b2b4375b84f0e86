"""Shows a search as text, as a picture and as JSON lines, and explains its results.

May import `searcher` and the rooms below. It changes nothing. The modules that `status` uses import neither
Optuna nor Ray.
"""
