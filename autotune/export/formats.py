"""The export formats by name, and how each is rendered."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml

from autotune.core.errors import InputError, did_you_mean, printable
from autotune.export.winner import Exported, Winner, comment_lines
from autotune.space.naming import nest
from autotune.workloads.base import Workload
from autotune.workloads.frameworks.framework import ConfigFile
from autotune.workloads.frameworks.known import FRAMEWORKS

EVIDENCE = "_autotune"  # key of the evidence in JSON, which has no comments


# Nested values of a file, with one line for each setting that the format cannot express.
Values = tuple[Mapping[str, Any], tuple[str, ...]]


@dataclass(frozen=True)
class Format:
    suffix: str  # the default name is best.`suffix`
    values: Callable[[Winner], Values] | None = None  # None: the file of the workload's own trainer
    reads: str = ""  # call that reads the file, with the placeholder {file}

    @property
    def is_own(self) -> bool:
        """True for the trainer's own config or command line."""
        return self.values is None

    def render(self, winner: Winner) -> Exported:
        """Returns the file, evidence included; raises InputError if the format can express no setting."""
        if self.values is None:
            return Exported(winner.comment + winner.workload.own_file.text(winner.settings))
        values, unsaid = self.values(winner)
        if self.suffix == "json":
            evidence = {name: printable(fact) for name, fact in winner.evidence.items()}
            notes = {**evidence, **({"left out": unsaid} if unsaid else {})}
            return Exported(json.dumps({**values, EVIDENCE: notes}, indent=2) + "\n", unsaid)
        head = ("what this file has no place for:", *(f"  {line}" for line in unsaid)) if unsaid else ()
        text = winner.comment + comment_lines(head) + yaml.safe_dump(dict(values), sort_keys=False)
        return Exported(text, unsaid)


def _translated(kind: str, file: ConfigFile, winner: Winner) -> Values:
    """Returns the settings that a framework's file can express; raises InputError if there are none."""
    theirs = winner.workload.entry_point
    # Whether a setting that already has one of the framework's names keeps it.
    knows_names = theirs == kind or (file.is_common and theirs not in FRAMEWORKS)
    own: dict[str, Any] = {}
    by_meaning: dict[str, Any] = {}
    unsaid: list[str] = []
    for given in winner.every:
        if knows_names and (match := file.own.fullmatch(given.path)):
            own[match[1]] = given.theirs
            continue
        says = file.says.get(given.meaning, lambda _: None)
        translation = {says: given.ours} if isinstance(says, str) else says(given.ours)
        by_meaning |= translation or {}
        note = file.notes.get(f"{given.meaning}={given.ours}")
        if note or translation is None:
            note = note or file.notes.get(given.meaning, "")
            value = json.dumps(given.theirs, default=str)
            unsaid.append(f"{given.path}: {value}{f' ({note})' if note else ''}")
    if not (own or by_meaning):
        raise InputError(f"--format {kind}: has a place for none of the settings")
    values = nest({**by_meaning, **own})
    off = {} if winner.has_workers else {n: v for n, v in file.without_workers.items() if n in values}
    return {**file.begins, **values, **off}, tuple(unsaid)


FORMATS: Mapping[str, Format] = {
    "r2gen": Format("yaml"),
    **{
        kind: Format(one.file.suffix, partial(_translated, kind, one.file), one.file.reads)
        for kind, one in FRAMEWORKS.items()
        if one.file
    },
    "shell": Format("sh"),
    "yaml": Format("yaml", lambda winner: (winner.settings, ())),
    "json": Format("json", lambda winner: (winner.settings, ())),
}


def named(name: str | None, workload: Workload) -> Format:
    """Returns the format `name`, by default the workload's own; raises InputError if it is not offered."""
    own = workload.own_file.format
    if name is None:
        return FORMATS[own]
    if name not in FORMATS:
        raise InputError(f"--format: no such format, got {name!r}{did_you_mean(name, list(FORMATS))}")
    offered = [one for one, form in FORMATS.items() if one == own or not form.is_own]
    if name not in offered:
        raise InputError(
            f"--format {name}: {workload.entry_point} has no such format, but {', '.join(offered)}"
        )
    return FORMATS[name]
