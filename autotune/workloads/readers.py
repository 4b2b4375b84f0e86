"""Reads YAML, JSON and Python: the values in a text, by path, each with its place."""

import ast
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import yaml

from autotune.core.errors import InputError

Step = str | int

_STEP = re.compile(r"(?:^|\.)([^.\[\]]+)|\[(\d+)\]")
_PATH = re.compile(f"(?:{_STEP.pattern})+")
_ANCHOR = re.compile(r"(?:&\S*\s+)?")
_ANCHOR_AND_TAG = re.compile(r"(?:[&!]\S*\s+)*")
_MOST = 100_000  # values in a YAML text: aliases can expand to billions
_FUNCTIONS = ("main", "train")


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
        end, is_scalar = theirs.end_mark.index, isinstance(theirs, yaml.ScalarNode)
        properties = (_ANCHOR if is_scalar else _ANCHOR_AND_TAG).match(self._text, theirs.start_mark.index)
        start = min(properties.end() if properties else 0, end)
        if isinstance(theirs, yaml.ScalarNode):
            if start < end and self._text[start] in "|>":  # the end mark of a block is at the next token
                end = start + len(self._text[start:end].rstrip())
            return Node(start, end, self._value(theirs))
        is_list = isinstance(theirs, yaml.SequenceNode)
        is_block = isinstance(theirs, yaml.CollectionNode) and not theirs.flow_style
        items = theirs.value
        pairs = enumerate(items) if is_list else ((self._name(key), value) for key, value in items)
        inner: dict[Step, Node] = {name: self.node(value) for name, value in pairs}
        if is_block and inner:
            end = max(node.end for node in inner.values())
        last_key = theirs.value[-1][0].start_mark.index if inner and not is_list else start
        return Node(start, end, inner=inner, is_list=is_list, is_block=is_block, last_key=last_key)

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


def read_python(text: str) -> Node:
    """Returns the constants of a script that are set once, to a number, a text or a truth value.

    They are names of the module, of what only a main script runs, and by a dotted path those of its classes
    and of its functions `main` and `train`. Raises InputError if `text` is not Python.
    """
    return Node(0, len(text), inner=_PythonReader(text).set_once(parse_python(text).body))


def parse_python(text: str | bytes) -> ast.Module:
    """Returns the syntax tree; raises InputError if `text` is not Python."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of the script's own escapes
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(f"not Python: {getattr(error, 'msg', error)}") from None


class _PythonReader:
    """Converts the parser's trees, whose positions are lines from 1 and columns in bytes."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode()
        lines = self._bytes.splitlines(keepends=True)  # at \n, \r and \r\n, as the parser does
        self._starts = [0, *accumulate(map(len, lines))]

    def set_once(self, body: Sequence[ast.stmt]) -> dict[Step, Node]:
        """Returns the constants in a body that it sets once, by name."""
        found = list(self._set(body))
        counts = Counter(name for name, _ in found)
        return {name: node for name, node in found if node is not None and counts[name] == 1}

    def _set(self, body: Sequence[ast.stmt]) -> Iterator[tuple[str, Node | None]]:
        """Yields every name that a body sets, with None if its value is not written there."""
        for statement in body:
            match statement:
                case ast.Assign(targets=[ast.Name(name)], value=value):
                    yield name, self._literal(value)
                case ast.Assign(targets=[ast.Tuple(left)], value=ast.Tuple(right)) if len(left) == len(right):
                    pairs = zip(left, right, strict=True)
                    yield from self._set([ast.Assign(targets=[one], value=value) for one, value in pairs])
                case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value):
                    yield name, self._literal(value)
                case ast.AugAssign(target=ast.Name(name)):
                    yield name, None
                case ast.ClassDef(name=name, body=inner):
                    yield name, Node(0, 0, inner=self.set_once(inner))
                case ast.FunctionDef(name=name, body=inner) if name in _FUNCTIONS:
                    yield name, Node(0, 0, inner=self.set_once(inner))
                case ast.If(test=ast.Compare(left=ast.Name("__name__")), body=inner):
                    yield from self._set(inner)

    def _literal(self, value: ast.expr) -> Node | None:
        with suppress(ValueError, TypeError):
            if isinstance(found := ast.literal_eval(value), bool | int | float | str):
                start = self._place(value.lineno, value.col_offset)
                end = self._place(value.end_lineno or value.lineno, value.end_col_offset or value.col_offset)
                return Node(start, end, found)
        return None

    def _place(self, line: int, column: int) -> int:
        return len(self._bytes[: self._starts[line - 1] + column].decode())
