"""Reads the constants of a Python script, such as `batch_size = 64` at its top."""

import ast
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate

from autotune.core.errors import InputError
from autotune.workloads.node import Node, Step

_FUNCTIONS = ("main", "train")


def read_python(text: str) -> Node:
    """Returns the constants of a script that are set once, to a number, a text or a truth value.

    They are names of the module, of what only a main script runs, and by a dotted path those of its classes
    and of its functions `main` and `train`. Raises InputError if `text` is not Python.
    """
    return Node(0, len(text), inner=_once(parse_python(text).body, _Lines(text)))


def parse_python(text: str | bytes) -> ast.Module:
    """Returns the syntax tree; raises InputError if `text` is not Python."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of the script's own escapes
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(f"not Python: {getattr(error, 'msg', error)}") from None


class _Lines:
    """Converts positions of the parser, lines from 1 and columns in bytes, to numbers of characters."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode()
        lines = self._bytes.splitlines(keepends=True)  # at \n, \r and \r\n, as the parser does
        self._starts = [0, *accumulate(map(len, lines))]

    def place(self, line: int, column: int) -> int:
        return len(self._bytes[: self._starts[line - 1] + column].decode())


def _once(body: Sequence[ast.stmt], lines: _Lines) -> dict[Step, Node]:
    """Returns the constants in a body that it sets once, by name."""
    found = list(_constants(body, lines))
    counts = Counter(name for name, _ in found)
    return {name: node for name, node in found if node is not None and counts[name] == 1}


def _constants(body: Sequence[ast.stmt], lines: _Lines) -> Iterator[tuple[str, Node | None]]:
    """Yields every name that a body sets, with None if its value is not written there."""
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(name)], value=value):
                yield name, _literal(value, lines)
            case ast.Assign(targets=[ast.Tuple(names)], value=ast.Tuple(values)) if len(names) == len(values):
                pairs = [ast.Assign(targets=[n], value=v) for n, v in zip(names, values, strict=True)]
                yield from _constants(pairs, lines)
            case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value):
                yield name, _literal(value, lines)
            case ast.AugAssign(target=ast.Name(name)):
                yield name, None
            case ast.ClassDef(name=name, body=inner):
                yield name, Node(0, 0, inner=_once(inner, lines))
            case ast.FunctionDef(name=name, body=inner) if name in _FUNCTIONS:
                yield name, Node(0, 0, inner=_once(inner, lines))
            case ast.If(test=ast.Compare(left=ast.Name("__name__")), body=inner):
                yield from _constants(inner, lines)


def _literal(value: ast.expr, lines: _Lines) -> Node | None:
    with suppress(ValueError, TypeError):
        if isinstance(found := ast.literal_eval(value), bool | int | float | str):
            start = lines.place(value.lineno, value.col_offset)
            end = lines.place(value.end_lineno or value.lineno, value.end_col_offset or value.col_offset)
            return Node(start, end, found)
    return None
