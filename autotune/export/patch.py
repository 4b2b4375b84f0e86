"""Replaces the searched settings in the user's own YAML, JSON or Python, and keeps everything else."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.core import common_names
from autotune.core.errors import InputError
from autotune.core.settings import PRECISION, PRECISIONS
from autotune.export.winner import Given, Winner, ends_with
from autotune.space.naming import is_same
from autotune.workloads.frameworks.known import FRAMEWORKS
from autotune.workloads.in_place import Document

_COMMENTS = {".yaml", ".yml", ".py"}
_NOTHING = "(not there)"
_START = re.compile("\ufeff?(#!.*\n)?")  # valid only at the beginning of a file
_SWITCHES = ("bf16", "fp16", "tf32")
_FULL = ("fp32", "torch-default", "tf32")  # other precisions leave `tf32` as it is
# Spellings of precisions by the key in the file, and further values that the key may have.
_WORDS: Mapping[str, Mapping[str, str]] = {
    "mixed_precision": {**common_names.ACCELERATES, "fp8": "fp8"},
    "dtype": common_names.TORCHS,
    "torch_dtype": common_names.TORCHS,
    "precision": common_names.LIGHTNINGS,
}
_OTHERS: Mapping[str, Sequence[Any]] = {
    "dtype": ("auto",),
    "torch_dtype": ("auto",),
    "precision": tuple(itertools.chain(*common_names.LIGHTNINGS_SHORT.values())),
}


@dataclass(frozen=True)
class Patched:
    """A file's new text, with one line for each changed value and each setting left out."""

    text: str
    replaced: tuple[str, ...]
    left_out: tuple[str, ...]


class _NoPlace(Exception):  # noqa: N818 - reported, not an error
    """The reason that a setting has no place in a file."""


def patch(document: Document, winner: Winner) -> Patched:
    """Returns the text of a file with a winner's values; raises InputError if none has a place in it.

    A file that the workload writes for its trials gets the values that a trial got. In any other file, a
    value goes to its own path, or to the only key that commonly means the same. YAML and Python begin with
    the evidence as comments.
    """
    leaves = dict(document.root.leaves())
    searched = _searched(winner)
    if (filled := winner.workload.own_file.put_in(document.file, winner.settings)) is not None:
        values = dict(filled.values)
        parts = tuple(f"{name}{end}" for name in filled.names for end in (".", "["))
        missing = [g for g in searched if g.path not in filled.names and not g.path.startswith(parts)]
        left_out = [f"{given.path}: {given.theirs}: not in workload.files" for given in missing]
    else:
        values, left_out = {}, []
        for given in searched:
            free = {path: old for path, old in leaves.items() if path not in values}
            try:
                values |= _places(given, free, winner)
            except _NoPlace as reason:
                left_out.append(f"{given.path}: {given.theirs}: {reason}")
    if not values:
        raise InputError(f"has no place for any of: {'; '.join(left_out)}")
    head = winner.comment if document.file.suffix.lower() in _COMMENTS else ""
    new_text = document.replaced(values).text
    replaced = tuple(
        f"{path}: {leaves.get(path, _NOTHING)} -> {value}"
        for path, value in values.items()
        if not is_same(leaves.get(path, _NOTHING), value)
    )
    return Patched(_START.sub(lambda start: start[0] + head, new_text, count=1), replaced, tuple(left_out))


def _searched(winner: Winner) -> list[Given]:
    """Returns the searched settings; those of loader workers are off if a trial had no workers."""
    framework = FRAMEWORKS.get(winner.workload.entry_point)
    off = framework.file.without_workers if framework and framework.file and not winner.has_workers else {}
    return [
        given._replace(theirs=off[name], ours=off[name]) if (name := _last(given.path)) in off else given
        for given in winner.every
        if given.path in winner.searched
    ]


def _places(given: Given, leaves: Mapping[str, Any], winner: Winner) -> dict[str, Any]:
    words = tuple(winner.naming.values.get(given.name, {}).values())
    if given.path in leaves:
        return {given.path: _in_words_of(given.path, leaves[given.path], given, (*words, *PRECISIONS))}
    others = {one.path for one in winner.every} - {given.path}
    names = common_names.unambiguous_names(given.meaning)
    alike = [path for path in leaves if path not in others and ends_with(path, names)]
    if len(alike) > 1:
        raise _NoPlace(f"could be any of {', '.join(alike)}")
    if alike:
        place, old = alike[0], leaves[alike[0]]
        if isinstance(old, bool) and given.meaning != PRECISION:
            return {place: given.ours not in common_names.OFF}
        return {place: _in_words_of(place, old, given, words)}
    if given.meaning == PRECISION and (switches := _switches(given.ours, leaves)):
        return switches
    raise _NoPlace("not found")


def _in_words_of(path: str, old: Any, given: Given, own: Sequence[Any]) -> Any:
    """Returns the value for `path`: a precision as the file spells it, unless `old` is the user's own."""
    name = _last(path)
    words = _WORDS.get(name, {}) if given.meaning == PRECISION else {}
    is_files = old in words.values() or (old in _OTHERS.get(name, ()) and old not in own)
    if not words or not is_files or given.theirs in words.values():
        return given.theirs
    if given.ours not in words:
        raise _NoPlace(f"{path} has no value for it")
    return words[given.ours]


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _switches(precision: Any, leaves: Mapping[str, Any]) -> dict[str, bool]:
    """Returns new values for a file's switches `bf16`, `fp16` and `tf32` (or `bf16.enabled` ...), by path."""
    switches = {path: name for path in leaves if (name := _last(path.removesuffix(".enabled"))) in _SWITCHES}
    if not switches or precision not in PRECISIONS:
        return {}
    if precision in _SWITCHES and precision not in switches.values():  # added next to an existing switch
        path, name = next(iter(switches.items()))
        switches[precision.join(path.rsplit(name, 1))] = precision
    return {
        path: name == precision for path, name in switches.items() if name != "tf32" or precision in _FULL
    }
