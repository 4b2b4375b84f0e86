"""A user's own YAML or JSON with some values replaced where they stand, and every other byte as it was.

`node` is a value with its place in a text, `json_nodes` and `yaml_nodes` find them, `written` writes values,
and `replace` replaces them. Pure: text in, text out.
"""
