"""For a user's own `tune.Tuner`: a searcher that learns what fits into memory, and a W&B callback."""
