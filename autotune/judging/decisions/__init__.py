"""Decisions that follow from the trials: who wins, what runs next, which trials are stopped."""
