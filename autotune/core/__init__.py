"""Settings, trials, sizes, errors and atomic file writes, on the standard library alone."""
