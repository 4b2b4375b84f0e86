"""Values as JSON and YAML write them on one line."""

import json
import math
from typing import Any

import yaml

_QUOTES = {"'", '"'}


def as_json(value: Any) -> str:
    return json.dumps(value)


def as_yaml(value: Any, before: str = "") -> str:
    """`value` as it may stand anywhere; a text is quoted as the text `before` is, which it replaces."""
    quoted = isinstance(value, str) and (
        before[:1] if before[:1] in _QUOTES else '"' if "\n" in value else None
    )
    text = yaml.safe_dump(
        [value],
        default_flow_style=True,
        default_style=quoted or None,
        width=math.inf,
        allow_unicode=True,
        sort_keys=False,
    )
    return text.strip()[1:-1]  # in a list, because what is plain there is plain everywhere
