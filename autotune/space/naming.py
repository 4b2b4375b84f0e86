"""Translates names and values between a user's nested settings and the tuner's flat ones.

A flat setting is named by its role if it has one, else by its path, such as `optim.betas[0]`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.core.errors import did_you_mean
from autotune.core.settings import Setting

_PATH = re.compile(r"[^.\[\]{}]+(\.[^.\[\]{}]+|\[\d+\])*")
_STEP = re.compile(r"([^.\[\]{}]+)|\[(\d+)\]")
_EMPTY: Mapping[str, type] = {"[]": list, "{}": dict}
_MOST = 10_000


@dataclass(frozen=True)
class Naming:
    roles: Mapping[str, str] = field(default_factory=dict)  # the user's path by the tuner's name
    # The user's words by name and value, such as {precision: {fp16: 16-mixed}}.
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def name(self, path: str) -> str:
        """Returns the tuner's name of the setting at `path`."""
        return next((role for role, own_path in self.roles.items() if own_path == path), path)

    def path(self, name: str) -> str:
        """Returns the user's path of the setting `name`."""
        return self.roles.get(name, name)

    def named(self, nested: Mapping[str, Any]) -> dict[str, Any]:
        """Returns `nested` settings in the tuner's form; raises ValueError for ambiguous or invalid paths."""
        flat: dict[str, Any] = {}
        for path, value in flatten(nested):
            if len(flat) == _MOST:  # YAML aliases can expand to billions
                raise ValueError(f"at most {_MOST} settings, got more")
            name = self.name(path)
            if name in flat or (name == path and path in self.roles):
                raise ValueError(f"{name}: two settings have this name, {self.path(name)!r} and {path!r}")
            flat[name] = self.value(name, value)
        nest({self.path(name): value for name, value in flat.items()})
        return flat

    def value(self, name: str, word: Any) -> Any:
        """Returns the tuner's value for a user's `word`; a value without a word of its own stays the same."""
        words = self.values.get(name, {})
        if not isinstance(word, list | dict) and text_of(word) in words:
            return word
        match = next((value for value, own_word in words.items() if is_same(own_word, word)), None)
        return word if match is None else _parse_text(match)

    def as_given(self, flat: Mapping[str, Setting]) -> dict[str, Any]:
        """Returns `flat` settings in the user's names, shape and words."""
        words = {name: self.values.get(name, {}).get(text_of(value), value) for name, value in flat.items()}
        return nest({self.path(name): value for name, value in words.items()})

    def no_setting(self, path: str, baseline: Mapping[str, Any]) -> str:
        return f"the baseline has no setting {path!r}{did_you_mean(path, [*map(self.path, baseline)])}"

    def mistakes(self, known: Mapping[str, Any], baseline: Mapping[str, Any]) -> Iterator[str]:
        for role, path in self.roles.items():
            if role not in known:
                yield f"roles: no such role {role!r}{did_you_mean(role, list(known))}"
            elif (first := self.name(path)) != role:
                yield f"roles.{role}: {path} is the {first} already, and a setting has one role"
            elif role not in baseline:
                yield f"roles.{role}: {self.no_setting(path, baseline)}"
        for name in self.values:
            if name not in baseline:
                yield f"values: the baseline has no setting {name!r}{did_you_mean(name, list(baseline))}"


def text_of(value: Setting) -> str:
    """Returns a value as a key of JSON or YAML: `fp16`, `true`, `8`."""
    return value if isinstance(value, str) else json.dumps(value)


def _parse_text(text: str) -> Setting:
    """Inverts `text_of`."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    is_setting = value is None or isinstance(value, bool | int | float)
    return value if is_setting and text_of(value) == text else text


def is_same(value: Any, other: Any) -> bool:
    """Returns True if the values are equal and of one type: 1 is not True."""
    return bool(value == other) and type(value) is type(other)


def flatten(nested: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the path and value of every leaf; an empty mapping or list is one, with suffix `{}` or `[]`."""
    if isinstance(nested, Mapping) and (nested or not path):
        for key, value in nested.items():
            if not isinstance(key, str):
                raise ValueError(f"{path or 'baseline'}: names must be text, got {key!r}")  # noqa: TRY004 - pydantic collects ValueErrors
            yield from flatten(value, f"{path}.{key}" if path else key)
    elif isinstance(nested, list) and nested:
        for i, item in enumerate(nested):
            yield from flatten(item, f"{path}[{i}]")
    elif isinstance(nested, list | Mapping):
        yield f"{path}{'[]' if isinstance(nested, list) else '{}'}", None
    else:
        yield path, nested


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Inverts `flatten`; raises ValueError if paths conflict."""
    root: dict[str | int, Any] = {}
    for path, value in flat.items():
        empty = _EMPTY.get(path[-2:])
        *above, last = _steps(path[:-2] if empty else path)
        inside = root
        for step in above:
            inside = inside.setdefault(step, {})
            if not isinstance(inside, dict):
                rule = f"{step} is a setting itself, and has no settings below it"
                raise ValueError(f"{path}: {rule}")  # noqa: TRY004 - pydantic collects ValueErrors
        if last in inside:
            raise ValueError(f"{path}: given twice")
        inside[last] = _Leaf(empty() if empty else value)
    return {str(key): _built(value, str(key)) for key, value in root.items()}


@dataclass(frozen=True)
class _Leaf:
    """A value that is not descended into, even if it is a mapping."""

    value: Any


def _steps(path: str) -> list[str | int]:
    if _PATH.fullmatch(path) is None:
        raise ValueError(f"{path!r}: not a path such as optim.lr or betas[0]")
    return [int(index) if index else name for name, index in _STEP.findall(path)]


def _built(value: Any, path: str) -> Any:
    if isinstance(value, _Leaf):
        return value.value
    if not any(isinstance(key, int) for key in value):
        return {key: _built(inner, f"{path}.{key}") for key, inner in value.items()}
    if set(value) != set(range(len(value))):
        raise ValueError(f"{path}: a list needs every index from 0, got {sorted(map(str, value))}")
    return [_built(value[i], f"{path}[{i}]") for i in range(len(value))]
