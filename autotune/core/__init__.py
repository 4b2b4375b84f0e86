"""The nouns: settings, trials, sizes, errors; and files that are written atomically.

May import only the standard library: no other room, and nothing that has to be installed.
"""
