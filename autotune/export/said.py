"""Settings in the words of a framework."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.core.errors import InputError
from autotune.export import names
from autotune.export.winner import Given, Winner
from autotune.space.naming import nest

# A value of the tuner's -> what is at which path of the file; None: the framework has no word for it.
Says = Callable[[Any], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Words:
    """How a framework says what settings mean: `says`, by what is meant.

    Settings below one of the paths in `own`, but for those in `not_own`, have the framework's names: they go
    to the path that it stands for. `notes` tell the reader what is not said; that one value is not said
    whole, they have by `precision=tf32`.
    """

    says: Mapping[str, Says]
    own: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    not_own: frozenset[str] = frozenset()

    def without_own(self) -> "Words":
        """The same for settings that have another framework's names."""
        return replace(self, own={})


def at(path: str) -> Says:
    """The value itself, at `path`."""
    return lambda value: {path: value}


def word(path: str, words: Mapping[Any, Any]) -> Says:
    """A word for a value, at `path`."""
    return lambda value: {path: words[value]} if value in words else None


def whether(path: str) -> Says:
    """At `path`, whether something is on."""
    return lambda value: {path: value not in names.OFF}


def said(winner: Winner, words: Words, name: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What the format `name` has of a winner, nested, and a line for each setting that it has no place for.

    Raises InputError where it has a place for none.
    """
    values = {given.name: given.theirs for given in winner.every}
    own: dict[str, Any] = {}
    by_role: dict[str, Any] = {}
    unsaid: list[str] = []
    for given in winner.every:
        what = names.meant(given.name, values)
        if (path := _own_path(given.path, words)) is not None:
            own[path] = given.theirs
            continue
        found = words.says[what](given.ours) if what in words.says else None
        by_role |= found or {}
        note = words.notes.get(f"{what}={given.ours}") or (
            words.notes.get(what, "") if found is None else None
        )
        if note is not None:
            unsaid.append(_line(given, note))
    if not (own or by_role):
        raise InputError(f"--format {name}: none of the settings is one that it has a place for")
    return nest({**by_role, **own}), tuple(unsaid)


def _own_path(path: str, words: Words) -> str | None:
    if path in words.not_own:
        return None
    theirs = (mine + path.removeprefix(above) for above, mine in words.own.items() if path.startswith(above))
    return next(theirs, None)


def _line(given: Given, note: str) -> str:
    return f"{given.path}: {json.dumps(given.theirs, default=str)}{f' ({note})' if note else ''}"


def below(unsaid: tuple[str, ...]) -> Iterator[str]:
    """The lines of a comment that has what a file does not say."""
    if unsaid:
        yield "what this file has no place for:"
        yield from (f"  {line}" for line in unsaid)
