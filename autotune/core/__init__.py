"""The package's nouns: settings, trials, sizes, errors; and atomic file writes.

Imports only the standard library: no other part of the package and nothing that must be installed.
"""
