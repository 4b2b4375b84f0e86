"""Queries on syntax trees; no code is run."""

import ast
import operator
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

UNKNOWN = object()  # not a constant
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def parsed(text: str) -> ast.Module | None:
    """Returns the tree of `text`, None if it does not parse in this version of Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about invalid escapes
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def dotted(node: ast.AST) -> str:
    """Returns the dotted name of a node, or of the function that it calls; "" if it has none."""
    match node:
        case ast.Call(func=function):
            return dotted(function)
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=owner, attr=name):
            return f"{dotted(owner)}.{name}".removeprefix(".")
    return ""


def last(node: ast.AST) -> str:
    """Returns `c` of `a.b.c`."""
    return dotted(node).rpartition(".")[2]


def calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    """Yields the calls of functions whose last name is one of `names`, in source order."""
    yield from (call for name, call in _calls(tree) if name in names)


@lru_cache(maxsize=1024)  # the same files are queried a dozen times
def _calls(tree: ast.AST) -> tuple[tuple[str, ast.Call], ...]:
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return tuple((last(call), call) for call in sorted(nodes, key=lambda one: (one.lineno, one.col_offset)))


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Returns the keyword argument `name` of a call; None if not given."""
    return next((one.value for one in call.keywords if one.arg == name), None)


def value(node: ast.expr | None) -> Any:
    """Returns the value of a literal or of arithmetic on literals, else UNKNOWN."""
    if node is None:
        return UNKNOWN
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _computed(_ARITHMETIC[type(node.op)], value(node.left), value(node.right))
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return UNKNOWN


def _computed(how: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if not all(isinstance(side, int | float) for side in (left, right)):
        return UNKNOWN
    try:
        return how(left, right)
    except ArithmeticError:
        return UNKNOWN


def strings(node: ast.AST) -> Iterator[str]:
    """Yields every string literal below a node."""
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value
