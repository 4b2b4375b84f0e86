"""Measures speed, quality over samples, and trends, with confidence intervals. Knows nothing of a search."""
