"""Edits a user's own YAML or JSON: replaces values by path, and keeps every other byte.

`nodes` finds the values in a text, and `document` edits them.
"""
