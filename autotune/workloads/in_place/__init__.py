"""Replaces values in a user's own YAML or JSON, and keeps every other byte. Pure: text in, text out.

`node` is a value with its place in a text, `json_nodes` and `yaml_nodes` find them, `written` writes values,
and `replace` replaces them.
"""
