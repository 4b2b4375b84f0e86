"""Where the values of a YAML text are."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import yaml

from autotune.core.errors import InputError
from autotune.workloads.in_place.node import Node, Step

_ANCHOR = re.compile(r"(?:&\S*\s+)?")
_ALIAS = re.compile(r"\*[^\s,\]}]+")
_ANCHOR_AND_TAG = re.compile(r"(?:[&!]\S*\s+)*")
_BLOCK = ("|", ">")
_MOST = 100_000  # aliases can stand for billions


def read(text: str) -> Node:
    """The value of `text`; raises InputError where it is not one YAML document."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return Node(0, 0) if root is None else _Reader(text, root).node(root)
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        where = f" in line {at.line + 1}, column {at.column + 1}" if at else ""
        raise InputError(f"not YAML: {error.problem or error.context}{where}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"not YAML: {type(error).__name__}") from None


class _Reader:
    """Makes nodes of PyYAML's, whose marks say where they begin, with their properties, and end.

    A block's own mark is at the beginning of what follows it: it ends where the last value in it does.
    """

    def __init__(self, text: str, root: yaml.Node) -> None:
        self._text = text
        self._references = Counter(map(id, _references(root)))
        self._made = 0

    def node(self, theirs: yaml.Node) -> Node:
        self._made += 1
        if self._made > _MOST:
            raise ValueError(f"at most {_MOST} values: got more")
        start, end = self._start(theirs), theirs.end_mark.index
        is_shared = self._references[id(theirs)] > 1
        if isinstance(theirs, yaml.ScalarNode):
            return Node(start, self._scalar_end(start, end), _value(theirs), is_shared=is_shared)
        inner: dict[Step, Node] = {}
        last_key = start
        if isinstance(theirs, yaml.MappingNode):
            for key, value in theirs.value:
                last_key = key.start_mark.index
                inner[_name(key)] = self._behind(key.end_mark.index, value)
        else:
            behind = start
            for value in theirs.value:
                inner[len(inner)] = node = self._behind(behind, value)
                behind = node.end
        is_block = isinstance(theirs, yaml.CollectionNode) and not theirs.flow_style
        return Node(
            start,
            max((node.end for node in inner.values()), default=end) if is_block else end,
            inner=inner,
            is_list=isinstance(theirs, yaml.SequenceNode),
            is_block=is_block,
            last_key=last_key,
            is_shared=is_shared,
        )

    def _behind(self, at: int, theirs: yaml.Node) -> Node:
        """The value behind `at`: what is before it has an anchor, and its alias is here."""
        node = self.node(theirs)
        alias = _ALIAS.search(self._text, at) if theirs.start_mark.index < at else None
        return replace(node, start=alias.start(), end=alias.end()) if alias else node

    def _start(self, theirs: yaml.Node) -> int:
        """Behind the anchor, which others may refer to; the tag of a scalar says how its text is read."""
        pattern = _ANCHOR if isinstance(theirs, yaml.ScalarNode) else _ANCHOR_AND_TAG
        properties = pattern.match(self._text, theirs.start_mark.index)
        return min(properties.end() if properties else 0, theirs.end_mark.index)

    def _scalar_end(self, start: int, end: int) -> int:
        """Without the end of the last line of a text that has lines of its own."""
        is_block = self._text.startswith(_BLOCK, start) and start < end
        return start + len(self._text[start:end].rstrip()) if is_block else end


def _references(root: yaml.Node) -> Iterator[yaml.Node]:
    """A node as often as others refer to it."""
    seen, waiting = {id(root)}, [root]
    while waiting:
        for inner in _inner(waiting.pop()):
            yield inner
            if id(inner) not in seen:
                seen.add(id(inner))
                waiting.append(inner)


def _inner(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [one for pair in node.value for one in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _name(key: yaml.Node) -> str:
    """A key's text; a key that is not text has no path, and is identified by its place."""
    return str(key.value) if isinstance(key, yaml.ScalarNode) else f"?{key.start_mark.index}"


def _value(scalar: yaml.ScalarNode) -> Any:
    """What PyYAML makes of it; of a tag that only its own reader knows, the tag and the text."""
    try:
        return yaml.constructor.SafeConstructor().construct_object(scalar)
    except (yaml.YAMLError, ValueError):
        return scalar.tag, scalar.value
