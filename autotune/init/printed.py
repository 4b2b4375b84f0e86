"""Finds the lines that a script prints, as text with holes for values."""

import ast
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass, replace

from autotune.core import units
from autotune.init import syntax
from autotune.init.sources import Source

_PRINTING = re.compile(r"print\w*|info|write|log_message")
_PERCENT = re.compile(r"%(?:\((\w+)\))?[-+ #0]*(?:\d+|\*)?(?:\.\d+)?[a-zA-Z]|%%")
_ROUNDING = {"str", "float", "round", "int", "item"}


@dataclass(frozen=True)
class Hole:
    """Value in a line, with the `words` of its expression; a `len()` is a count."""

    words: tuple[str, ...]
    is_count: bool = False


@dataclass(frozen=True)
class Line:
    """Line that is printed in the function `function`, at `place` in the project."""

    parts: tuple[str | Hole, ...]
    function: str
    place: str

    def text(self, hole: str) -> str:
        return "".join(part if isinstance(part, str) else hole for part in self.parts)


def lines(source: Source) -> Iterator[Line]:
    """Yields every line with a value that `source` prints."""
    for function, node in _within(source.tree, ""):
        if isinstance(node, ast.Call) and _PRINTING.fullmatch(syntax.last(node)) and node.args:
            for parts in _split(_printed(node)):
                if any(isinstance(part, Hole) for part in parts):
                    yield Line(parts, function, f"{source.path}:{node.lineno}")


def words(text: str) -> list[str]:
    """Returns the words of a name or label, in lower case, without digits."""
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower())


def _within(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """Yields every node with the name of its enclosing function."""
    for child in ast.iter_child_nodes(node):
        yield function, child
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _within(child, child.name if is_function else function)  # type: ignore[attr-defined]


def _printed(call: ast.Call) -> list[str | Hole]:
    """Returns what a call prints: `print`'s arguments joined by blanks, or a logger's filled format."""
    first, *others = call.args
    text = syntax.value(first)
    if (
        isinstance(text, str)
        and others
        and _PERCENT.search(text)
        and not syntax.last(call).startswith("print")
    ):
        return _filled(text, others)
    parts: list[str | Hole] = []
    for number, argument in enumerate(call.args):
        parts += [" "] * (number > 0) + _parts(argument)
    return parts


def _parts(node: ast.expr) -> list[str | Hole]:
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=values):
            return [part for value in values for part in _parts(value)]
        case ast.FormattedValue(value=value):
            return [_hole(value)]
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod(), right=right):
            given = list(right.elts) if isinstance(right, ast.Tuple) else [right]
            return _filled(text, given)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _parts(left) + _parts(right)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return _formatted(text, node)
        case ast.Call(args=[one]) if syntax.last(node) in _ROUNDING and not isinstance(one, ast.Starred):
            return _parts(one)
    return [_hole(node)]


def _hole(node: ast.AST) -> Hole:
    names = [one.id if isinstance(one, ast.Name) else one.attr for one in ast.walk(node)
             if isinstance(one, ast.Name | ast.Attribute)]  # fmt: skip
    hole_words = tuple(word for name in (*names, *syntax.strings(node)) for word in words(name))
    return Hole(hole_words, is_count=isinstance(node, ast.Call) and syntax.last(node) == "len")


def _filled(text: str, given: list[ast.expr]) -> list[str | Hole]:
    """Returns `text` with a hole at each `%` conversion."""
    parts, at, waiting = list[str | Hole](), 0, list(given)
    for match in _PERCENT.finditer(text):
        parts.append(text[at : match.start()])
        at = match.end()
        if match[0] == "%%":
            parts.append("%")
        else:
            parts.append(_hole(waiting.pop(0)) if waiting else Hole(tuple(words(match[1] or ""))))
    return [*parts, text[at:]]


def _formatted(text: str, call: ast.Call) -> list[str | Hole]:
    """Returns `text` with a hole at each `{}` field."""
    parts, position = list[str | Hole](), 0
    named = {one.arg: one.value for one in call.keywords}
    try:
        fields = list(string.Formatter().parse(text))
    except ValueError:
        return [Hole(())]
    for before, field, _, _ in fields:
        parts.append(before)
        if field is None:
            continue
        name = re.split(r"[.\[]", field)[0]
        numbered = units.whole(name)
        index = position if numbered is None else numbered
        position += not name
        given = named.get(name) or (call.args[index] if index < len(call.args) else None)
        own = tuple(words(field))
        known = _hole(given) if given else Hole(())
        parts.append(replace(known, words=(*known.words, *own)))
    return parts


def _split(parts: list[str | Hole]) -> Iterator[tuple[str | Hole, ...]]:
    """Splits parts at newlines, and joins adjacent texts."""
    line: list[str | Hole] = []
    for part in parts:
        if isinstance(part, Hole):
            line.append(part)
            continue
        for number, text in enumerate(part.split("\n")):
            if number:
                yield tuple(line)
                line = []
            if line and isinstance(line[-1], str):
                line[-1] += text
            elif text:
                line.append(text)
    yield tuple(line)
