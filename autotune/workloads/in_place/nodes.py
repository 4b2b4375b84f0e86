"""Values of a YAML or JSON text with their positions and paths. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import yaml

from autotune.core.errors import InputError

Step = str | int

_STEP = re.compile(r"(?:^|\.)([^.\[\]]+)|\[(\d+)\]")
_PATH = re.compile(f"(?:{_STEP.pattern})+")
_ANCHOR = re.compile(r"(?:&\S*\s+)?")
_ANCHOR_AND_TAG = re.compile(r"(?:[&!]\S*\s+)*")
_MOST = 100_000  # values in a YAML text: aliases can expand to billions


@dataclass(frozen=True)
class Node:
    """Value at the characters from `start` to `end` of a text."""

    start: int
    end: int
    value: Any = None  # of a scalar
    inner: Mapping[Step, "Node"] | None = None  # children by name or list index
    is_list: bool = False
    is_block: bool = False  # YAML block style, without brackets
    last_key: int = 0  # start of the last name in a mapping

    @property
    def data(self) -> Any:
        if self.inner is None:
            return self.value
        data = {name: node.data for name, node in self.inner.items()}
        return list(data.values()) if self.is_list else data

    def leaves(self, above: Sequence[Step] = ()) -> Iterator[tuple[str, Any]]:
        """Yields the path and the value of every scalar below this node."""
        for step, node in (self.inner or {}).items():
            path = (*above, step)
            yield from [(path_of(path), node.value)] if node.inner is None else node.leaves(path)


def steps(path: str) -> list[Step]:
    """Returns the names and indices in a path such as `optim.betas[0]`; raises InputError if malformed."""
    if not _PATH.fullmatch(path):
        raise InputError(f"a path must be such as optim.lr or betas[0], got {path!r}")
    return [name or int(index) for name, index in _STEP.findall(path)]


def path_of(names: Sequence[Step]) -> str:
    """Returns the path that consists of these names and indices."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in names).removeprefix(".")


def read_json(text: str) -> Node:
    """Parses `text`; raises InputError if it is not JSON."""
    try:
        json.loads(text)
        # Valid JSON is YAML, but for tabs, which are only between values, and the values themselves.
        root = yaml.compose(text.replace("\t", " "), Loader=yaml.SafeLoader)
        return _JsonReader(text).node(root) if root else Node(0, 0)
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # too many digits, or nested too deeply
        raise InputError(f"not JSON: {type(error).__name__}") from None


def read_yaml(text: str) -> Node:
    """Parses `text`; raises InputError if it is not one YAML document."""
    try:
        root = yaml.compose(text, Loader=_AliasLoader)
        return Node(0, 0) if root is None else _Reader(text).node(root)
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        where = f" in line {at.line + 1}, column {at.column + 1}" if at else ""
        raise InputError(f"not YAML: {error.problem or error.context}{where}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"not YAML: {type(error).__name__}") from None


class _AliasLoader(yaml.SafeLoader):
    """Gives an alias its own position, since PyYAML returns the node of the anchor."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        if isinstance(event, yaml.AliasEvent) and node is not None:
            node = copy(node)
            node.start_mark, node.end_mark = event.start_mark, event.end_mark
            if isinstance(node, yaml.CollectionNode):
                node.flow_style = True  # its lines are elsewhere
        return node


class _Reader:
    """Converts PyYAML nodes, whose start mark lies before anchor and tag."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._made = 0

    def node(self, theirs: yaml.Node) -> Node:
        self._made += 1
        if self._made > _MOST:
            raise ValueError(f"at most {_MOST} values, got more")
        start, end = self._start(theirs), theirs.end_mark.index
        if isinstance(theirs, yaml.ScalarNode):
            return Node(start, self._scalar_end(start, end), self._value(theirs))
        is_list = isinstance(theirs, yaml.SequenceNode)
        is_block = isinstance(theirs, yaml.CollectionNode) and not theirs.flow_style
        items = theirs.value
        pairs = enumerate(items) if is_list else ((self._name(key), value) for key, value in items)
        inner: dict[Step, Node] = {name: self.node(value) for name, value in pairs}
        if is_block and inner:  # the end mark of a block is at the next token
            end = max(node.end for node in inner.values())
        last_key = theirs.value[-1][0].start_mark.index if inner and not is_list else start
        return Node(start, end, inner=inner, is_list=is_list, is_block=is_block, last_key=last_key)

    def _start(self, theirs: yaml.Node) -> int:
        """Returns the position after the anchor and, except for scalars, after the tag."""
        pattern = _ANCHOR if isinstance(theirs, yaml.ScalarNode) else _ANCHOR_AND_TAG
        properties = pattern.match(self._text, theirs.start_mark.index)
        return min(properties.end() if properties else 0, theirs.end_mark.index)

    def _scalar_end(self, start: int, end: int) -> int:
        """Returns the end of a scalar; a block scalar ends before its trailing whitespace."""
        has_lines = start < end and self._text[start] in "|>"
        return start + len(self._text[start:end].rstrip()) if has_lines else end

    def _name(self, key: yaml.Node) -> str:
        """Returns the text of a scalar key; any other key is identified by its position."""
        return str(key.value) if isinstance(key, yaml.ScalarNode) else f"?{key.start_mark.index}"

    def _value(self, scalar: yaml.ScalarNode) -> Any:
        """Returns PyYAML's value; for an unknown tag, the tag and the text."""
        try:
            return yaml.constructor.SafeConstructor().construct_object(scalar)
        except (yaml.YAMLError, ValueError):
            return scalar.tag, scalar.value


class _JsonReader(_Reader):
    """Reads values and names as in JSON: 1e5 is a number there, but a text in YAML."""

    def _value(self, scalar: yaml.Node) -> Any:
        return json.loads(self._text[scalar.start_mark.index : scalar.end_mark.index])

    def _name(self, key: yaml.Node) -> str:
        return str(self._value(key))
