"""Reads the generated reports of a split from the files of `evaluate --reports`."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from r2gen.errors import InputError


@dataclass(frozen=True)
class Entry:
    """A line of a file: a study, and the report that a model generated for it."""

    id: str
    images: tuple[str, ...]  # paths
    reference: str
    report: str
    scores: Mapping[str, float]  # of this report alone
    found: tuple[str, ...]  # the clinical findings that the report asserts
    true: tuple[str, ...]  # those of the reference

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        lists = {name: tuple(values[name]) for name in ("images", "found", "true")}
        return cls(**{**values, **lists})


@dataclass(frozen=True)
class Shown:
    """A study, and the report of every model, by the model's name."""

    written: Mapping[str, Entry]

    @property
    def study(self) -> Entry:
        """Any of the entries: id, images, reference and true findings are the same in all."""
        return next(iter(self.written.values()))


def read(file: Path) -> list[Entry]:
    """Returns the entries of `file`, skipping invalid lines; raises InputError if it cannot be read."""
    entries = []
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                with suppress(ValueError, KeyError, TypeError):
                    entries.append(Entry.from_dict(json.loads(line)))
    except OSError as error:
        raise InputError(f"reports {file}: cannot be read: {error.strerror}") from None
    return entries


def spread(models: Mapping[str, Sequence[Entry]], count: int) -> tuple[Shown, ...]:
    """Returns `count` studies with the reports of every model.

    The split is divided, in its own order, into `count` equal parts, and the middle study of each is taken:
    neither chosen nor random. Studies that a model lacks are left out; a model without any entry is ignored.
    """
    by_study = {name: {entry.id: entry for entry in entries} for name, entries in models.items() if entries}
    if not by_study:
        return ()
    first, *others = by_study.values()
    common = [study for study in first if all(study in other for other in others)]
    count = min(count, len(common))
    chosen = [common[(2 * part + 1) * len(common) // (2 * count)] for part in range(count)]
    return tuple(Shown({name: entries[study] for name, entries in by_study.items()}) for study in chosen)
