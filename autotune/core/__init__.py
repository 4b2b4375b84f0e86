"""The nouns: settings, what each changes and needs, trials, sizes, errors, files that appear whole.

Imports the standard library.
No other room, and nothing that has to be installed.
"""
