"""Edits a user's own YAML, JSON or Python: replaces values by path, and keeps every other byte."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import yaml

from autotune.core.errors import InputError
from autotune.workloads.readers import Node, Step, path_of, read_json, read_python, read_yaml, steps


class Form(NamedTuple):
    """Reader of a text, and writer of a value that replaces another text."""

    read: Callable[[str], Node]
    write: Callable[[Any, str], str]
    takes_new: bool = True  # new names can be added


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


def _as_yaml(value: Any, before: str = "") -> str:
    """Returns a value on one line, valid in any context; a string gets the quotes of the text `before`."""
    quote = before[:1] if before[:1] in {"'", '"'} else '"' if "\n" in str(value) else None
    style = quote if isinstance(value, str) else None
    options: dict[str, Any] = {"width": math.inf, "allow_unicode": True, "sort_keys": False}
    text: str = yaml.safe_dump([value], default_flow_style=True, default_style=style, **options)
    return text.strip()[1:-1]  # dumped in a list, because text that is plain there is plain everywhere


_YAML = Form(read_yaml, _as_yaml)
_JSON = Form(read_json, lambda value, _: json.dumps(value))
_PYTHON = Form(read_python, lambda value, _: repr(value), takes_new=False)
_FORMS = {".json": _JSON, ".yaml": _YAML, ".yml": _YAML, ".py": _PYTHON}


def form_of(file: Path) -> Form:
    """Returns the form of `file`; raises InputError if it is neither YAML, JSON nor Python."""
    if (form := _FORMS.get(file.suffix.lower())) is None:
        raise InputError(f"{file}: a file must be {', '.join(_FORMS)}")
    return form


class Document:
    """Parsed `text` of a `file`, whose suffix selects the format; raises InputError if invalid."""

    def __init__(self, file: Path, text: str) -> None:
        self.file, self.text = file, text
        self._form = form_of(file)
        self.root = self._form.read(text)
        self._newline = "\r\n" if "\r\n" in text else "\n"

    @classmethod
    def read(cls, file: Path) -> Self:
        """Returns a file's document; raises InputError if it cannot be read."""
        try:
            return cls(file, file.read_bytes().decode())
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InputError("must be UTF-8") from None

    def replaced(self, values: Mapping[str, Any]) -> Self:
        """Returns the document with `values` at their paths; equal values keep their spelling.

        New names are added at the end of their mapping. Raises InputError, which names the path, if a value
        cannot be put there, or if that would change another value too.
        """
        document = self
        for path, value in values.items():
            try:
                document = document._with(steps(path), value)
            except InputError as error:
                raise InputError(f"{path}: {error}") from None
        return document

    def _with(self, path: list[Step], value: Any) -> Self:
        node, above, missing = self.root, list[Step](), path
        while match := _longest(node.inner or {}, missing):
            name, node, missing = match
            above.append(name)
        if missing and not self._form.takes_new:
            raise InputError("is no constant, or is set more than once")
        edits = list(self._added(node, above, missing, value) if missing else self._in_place(node, value))
        if not edits:
            return self
        wanted = repr(_changed(self.root.data, [*above, *missing], value))
        with suppress(InputError):
            text = self.text
            for start, end, new in sorted(edits, reverse=True):
                text = text[:start] + new + text[end:]
            changed = type(self)(self.file, text)
            if repr(changed.root.data) == wanted:
                return changed
        rule = "cannot be replaced in place, because it has an alias or a tag, or is empty"
        raise InputError(f"{rule}; write it in another way")

    def _in_place(self, node: Node, value: Any) -> Iterator[_Edit]:
        """Yields edits that turn a node into `value`; in a list of equal length, only items that change."""
        if repr(node.data) == repr(value):
            return
        is_list = node.is_list and isinstance(value, list)
        if is_list and node.inner and len(value) == len(node.inner):
            for inner, one in zip(node.inner.values(), value, strict=True):
                yield from self._in_place(inner, one)
        elif is_list and node.is_block and value:
            line = "\n" + " " * self._column(node.start)
            yield _Edit(node.start, node.end, line.join(f"- {self._form.write(one, '')}" for one in value))
        else:
            text = self._form.write(value, self.text[node.start : node.end])
            yield _Edit(node.start, node.end, text if node.start < node.end else f" {text}")

    def _added(self, node: Node, above: list[Step], missing: list[Step], value: Any) -> Iterator[_Edit]:
        """Yields the edit that adds the missing names below a node, which is reached by the names `above`."""
        what = path_of(above) or "the file"
        if any(isinstance(step, int) for step in missing):
            have = len(node.inner or ()) if node.is_list else 0
            raise InputError(f"there is no place {path_of([*above, *missing])}: {what} has {have}")
        if node.is_list or node.value is not None:
            rule = "is a list" if node.is_list else f"is {node.value!r}"
            raise InputError(f"{what} {rule}, and has no names below it")
        for step in reversed(missing):
            value = {step: value}
        pair, line = self._form.write(value, "")[1:-1], self._line_before(node.last_key)
        end = max((inner.end for inner in (node.inner or {}).values()), default=node.end)
        if node.inner and node.is_block:  # on a line of its own
            end = self.text.find("\n", end) if "\n" in self.text[end:] else len(self.text)
            end -= self.text[:end].endswith("\r")
            yield _Edit(end, end, f"{self._newline}{' ' * self._column(node.last_key)}{pair}")
        elif node.inner:
            is_on_own_line = not line.strip() and node.start < node.last_key - len(line)
            yield _Edit(end, end, f",{self._newline}{line}{pair}" if is_on_own_line else f", {pair}")
        elif self.text[: node.end].strip():
            yield _Edit(node.start, node.end, ("" if node.end > node.start else " ") + f"{{{pair}}}")
        else:  # only comments, which stay above
            before = "" if self.text[-1:] in {"", "\n"} else self._newline
            yield _Edit(len(self.text), len(self.text), f"{before}{pair}{self._newline}")

    def _line_before(self, at: int) -> str:
        return self.text[self.text.rfind("\n", 0, at) + 1 : at]

    def _column(self, at: int) -> int:
        """Returns the column of `at`, not counting a byte order mark."""
        return len(self._line_before(at).lstrip("\ufeff"))


def _longest(inner: Mapping[Step, Node], path: list[Step]) -> tuple[Step, Node, list[Step]] | None:
    """Returns the longest name that begins a path, its node, and the rest; names may contain dots."""
    for count in range(len(path), 0, -1):
        name = path[0] if count == 1 else ".".join(map(str, path[:count]))
        if name in inner:
            return name, inner[name], path[count:]
    return None


def _changed(data: Any, path: list[Step], value: Any) -> Any:
    """Returns `data` with `value` at a path: the expected result of an edit."""
    if not path:
        return value
    step, *below = path
    if isinstance(data, list):
        return [_changed(one, below, value) if index == step else one for index, one in enumerate(data)]
    data = data or {}
    return {**data, step: _changed(data.get(step), below, value)}
