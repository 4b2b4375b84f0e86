"""Edits a user's own YAML or JSON: replaces values by their paths, and keeps every other byte.

`nodes` finds the values of a text, and `document` is a text that can be edited.
"""
