"""The nouns: settings, trials and their outcomes, sizes, errors, files that appear whole.

Imports the standard library.
No other room, and nothing that has to be installed.
"""
