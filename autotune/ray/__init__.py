"""For a `tune.Tuner` of the user's own: a searcher that learns what fits, and W&B that marks failures."""
