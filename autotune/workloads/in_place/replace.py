"""Values by their paths in a text, without a change to anything else in it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from autotune.core.errors import InputError
from autotune.workloads.in_place import json_nodes, written, yaml_nodes
from autotune.workloads.in_place.node import Node, Step, path_of, steps


class Edit(NamedTuple):
    """`text` instead of the characters from `start` to `end`."""

    start: int
    end: int
    text: str


class Found(NamedTuple):
    """How far a path leads: the node there, the steps `above` it, and the `rest`, which leads nowhere."""

    node: Node
    above: list[Step]
    rest: list[Step]


@dataclass(frozen=True)
class Form:
    """How a text is read, and how a value is written into it instead of what was there before."""

    read: Callable[[str], Node]
    write: Callable[[Any, str], str]


_YAML = Form(yaml_nodes.read, written.as_yaml)
_FORMS = {
    ".json": Form(json_nodes.read, lambda value, _: written.as_json(value)),
    ".yaml": _YAML,
    ".yml": _YAML,
}


def form_of(file: Path | str) -> Form:
    """How the text of `file` is read, by its suffix; raises InputError where it is neither YAML nor JSON."""
    if (form := _FORMS.get(Path(file).suffix.lower())) is None:
        raise InputError(f"{file}: a file must be {', '.join(_FORMS)}")
    return form


def replaced(text: str, values: Mapping[str, Any], form: Form) -> str:
    """`text` with `values` at their paths; what stands there already, with its type, stays as it is written.

    A name that a mapping has not is added behind its last one. Raises InputError, which names the path, where
    there is no place for a value, or where it would change another one as well.
    """
    root = form.read(text)
    for path, value in values.items():
        try:
            text, root = _with(text, root, _as_named(root, steps(path)), value, form)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
    return text


def _as_named(node: Node, path: list[Step]) -> list[Step]:
    """The steps of `path` by the names that the text has, which may have dots in them: those that lead on."""
    inner, named = node.inner or {}, []
    for count in range(1, len(path) + 1):
        step = path[0] if count == 1 else ".".join(map(str, path[:count]))
        if step in inner:
            named.append([step, *_as_named(inner[step], path[count:])])
    return min(named, key=lambda found: _left(node, found), default=path)


def _left(node: Node, path: list[Step]) -> int:
    """How many steps lead nowhere."""
    for known, step in enumerate(path):
        if step not in (node.inner or {}):
            return len(path) - known
        node = (node.inner or {})[step]
    return 0


def _with(text: str, root: Node, path: list[Step], value: Any, form: Form) -> tuple[str, Node]:
    """The text whose value is `root` with one at `path`, and what its value is then."""
    if not (edits := _edits(text, root, path, value, form)):
        return text, root
    text, wanted = _spliced(text, edits), repr(_changed(root, path, value))
    with suppress(InputError):
        root = form.read(text)
        if repr(root.data) == wanted:
            return text, root
    # An empty value between commas, say, or a tag.
    raise InputError("cannot be replaced in place: write the value there in another way")


def _edits(text: str, root: Node, path: list[Step], value: Any, form: Form) -> list[Edit]:
    found = _found(root, path)
    if found.rest:
        return [_added(text, found, _nested(found.rest[1:], value), form)]
    return list(_in_place(text, found.node, value, form))


def _found(root: Node, path: list[Step]) -> Found:
    """How far `path` leads; raises InputError where an alias stands for what is there."""
    node, known = root, 0
    for step in path:
        if node.inner is None or step not in node.inner:
            break
        node, known = node.inner[step], known + 1
        if node.is_shared:
            raise InputError(
                f"{path_of(path[:known])} is used in other places, too, by an alias: write it out"
            )
    return Found(node, path[:known], path[known:])


def _in_place(text: str, node: Node, value: Any, form: Form) -> Iterator[Edit]:
    """As little as makes `value` of a node: of a list of as many values those that are others."""
    if repr(node.data) == repr(value):
        return
    if node.is_list and node.inner and isinstance(value, list) and len(value) == len(node.inner):
        for inner, one in zip(node.inner.values(), value, strict=True):
            yield from _in_place(text, inner, one, form)
        return
    before = text[node.start : node.end]
    if node.is_list and node.is_block and isinstance(value, list) and value:
        line = "\n" + " " * _column(text, node.start)
        yield Edit(node.start, node.end, line.join(f"- {form.write(one, '')}" for one in value))
    else:
        yield Edit(node.start, node.end, ("" if before else " ") + form.write(value, before))


def _nested(path: list[Step], value: Any) -> Any:
    for step in reversed(path):
        value = {step: value}
    return value


def _added(text: str, found: Found, value: Any, form: Form) -> Edit:
    """What makes the node that was found have the next name."""
    node, what = found.node, path_of(found.above) or "the file"
    if any(isinstance(step, int) for step in found.rest):
        have = len(node.inner) if node.is_list and node.inner else 0
        raise InputError(f"there is no place {path_of([*found.above, *found.rest])}: {what} has {have}")
    if not (node.is_mapping or node.is_nothing):
        rule = "is a list" if node.is_list else f"is {node.value!r}"
        raise InputError(f"{what} {rule}, and has no names below it")
    alone = form.write({found.rest[0]: value}, "")
    if not text[: node.end].strip() and not node.inner:  # nothing but comments, which stay above it
        newline = _newline(text)
        return Edit(
            len(text), len(text), f"{'' if text[-1:] in {'', chr(10)} else newline}{alone[1:-1]}{newline}"
        )
    if not node.inner:
        return Edit(node.start, node.end, ("" if node.end > node.start else " ") + alone)
    pair, end = alone[1:-1], max(inner.end for inner in node.inner.values())
    return _in_block(text, node, end, pair) if node.is_block else _in_flow(text, node, end, pair)


def _in_flow(text: str, node: Node, end: int, pair: str) -> Edit:
    """Behind the last value, on a line of its own where the last name has one."""
    line = text[text.rfind("\n", 0, node.last_key) + 1 : node.last_key]
    has_its_own = not line.strip() and node.start < node.last_key - len(line)
    return Edit(end, end, f",{_newline(text)}{line}{pair}" if has_its_own else f", {pair}")


def _in_block(text: str, node: Node, end: int, pair: str) -> Edit:
    """Below the line in which the last value ends, and a comment behind it."""
    end = text.find("\n", end) if "\n" in text[end:] else len(text)
    end -= text[:end].endswith("\r")
    return Edit(end, end, f"{_newline(text)}{' ' * _column(text, node.last_key)}{pair}")


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _column(text: str, at: int) -> int:
    """Characters before `at` in its line; a byte order mark is none."""
    return len(text[text.rfind("\n", 0, at) + 1 : at].lstrip("\ufeff"))


def _spliced(text: str, edits: list[Edit]) -> str:
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _changed(node: Node, path: list[Step], value: Any) -> Any:
    """What a reader must get."""
    if not path:
        return value
    step, *below = path
    inner = node.inner or {}
    changed = _changed(inner[step] if step in inner else Node(0, 0), below, value)
    if node.is_list:
        return [changed if i == step else one.data for i, one in inner.items()]
    return {**{name: one.data for name, one in inner.items()}, step: changed}
