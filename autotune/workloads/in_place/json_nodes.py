"""Where the values of a JSON text are."""

import json
import re

from autotune.core.errors import InputError
from autotune.workloads.in_place.node import Node, Step

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


def read(text: str) -> Node:
    """The value of `text`; raises InputError where it is no JSON."""
    try:
        json.loads(text)
        return _node(text, _after_space(text, 0))
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # a number of too many digits, too deep a nesting
        raise InputError(f"not JSON: {type(error).__name__}") from None


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _node(text: str, at: int) -> Node:
    """The value that begins at `at`, in what is known to be JSON."""
    if text[at] == "{":
        return _mapping(text, at)
    if text[at] == "[":
        return _list(text, at)
    value, end = _DECODER.raw_decode(text, at)
    return Node(at, end, value)


def _mapping(text: str, start: int) -> Node:
    inner: dict[Step, Node] = {}
    last_key, at = start, _after_space(text, start + 1)
    while text[at] != "}":
        last_key = _after_space(text, at + 1) if text[at] == "," else at
        name, end = _DECODER.raw_decode(text, last_key)
        colon = _after_space(text, end)
        inner[name] = _node(text, _after_space(text, colon + 1))
        at = _after_space(text, inner[name].end)
    return Node(start, at + 1, inner=inner, last_key=last_key)


def _list(text: str, start: int) -> Node:
    inner: dict[Step, Node] = {}
    at = _after_space(text, start + 1)
    while text[at] != "]":
        node = _node(text, _after_space(text, at + 1) if text[at] == "," else at)
        inner[len(inner)] = node
        at = _after_space(text, node.end)
    return Node(start, at + 1, inner=inner, is_list=True)
