"""Description of a framework: the objects whose arguments are settings, and their roles."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.core.settings import KnownSetting, Setting
from autotune.workloads.base import Cadence
from autotune.workloads.command import line

# Translates a value of the tuner into values by path in a file; None: the framework cannot express it.
Says = Callable[[Any], Mapping[str, Any] | None]


@dataclass(frozen=True)
class ConfigFile:
    """Maps the settings of a trial to a framework's own file."""

    suffix: str
    reads: str  # call that reads the file, with the placeholder {file}
    says: Mapping[str, str | Says]  # by meaning; a text is the path that takes the value unchanged
    notes: Mapping[str, str]  # by meaning, or by `precision=tf32`: where else to make the setting
    own: re.Pattern[str]  # settings under the framework's own names; the group is their path in the file
    is_common: bool = False  # commands may have settings under these names too
    begins: Mapping[str, Any] = field(default_factory=dict)  # values that the file needs in any case
    # Values that the worker settings need if the loader has no workers.
    without_workers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Framework:
    """A `kind` of workload. `roles` and `words` are defaults that a search space may override."""

    kind: str
    objects: tuple[str, ...]  # settings below one of these are arguments of every such object in the script
    roles: Mapping[str, tuple[str, ...]]  # paths that a setting may have, by the tuner's name
    # Path or pattern in the trial's directory, from which a training resumes by itself; None: it does not.
    checkpoint: str | None
    # The framework's spellings of the tuner's values, by role and value.
    words: Mapping[str, Mapping[str, Sequence[Setting]]] = field(default_factory=dict)
    known: tuple[KnownSetting, ...] = ()
    units: tuple[str, ...] = ("samples",)  # units of work in which evaluations can be scheduled
    # `(settings, samples, evaluations)` of a trial -> further settings, by the tuner's names.
    for_trial: Callable[[Mapping[str, Setting], int, int], Mapping[str, Setting]] = lambda *_: {}
    cadence: Cadence = field(default_factory=Cadence)  # of evaluations, by its own arguments
    builds: bool = True  # `autotune_KIND.train` trains what a function has built
    file: ConfigFile | None = None  # format of an exported winner; None: the framework has no own one

    def completed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a search space's `values` with default words, and default roles of settings that exist."""
        given, baseline = values.get("roles", {}), values.get("baseline")
        if not isinstance(given, Mapping) or not isinstance(baseline, Mapping):
            return dict(values)  # rejected by the search space
        settings = dict(line.flat(baseline))
        usual: dict[str, Any] = {}
        for role, paths in self.roles.items():
            its = next((path for path in paths if path in settings), None)
            if its and role not in given and its not in given.values() and role not in baseline:
                usual[role] = its
        own, roles = values.get("values", {}), {**usual, **given}
        words = {
            role: _spelt(spellings, [settings.get(path), *_choices(values.get("knobs"), path)])
            for role, spellings in self.words.items()
            if (path := roles.get(role)) in self.roles[role]
        }
        own = {**words, **own} if isinstance(own, Mapping) else own
        return {**values, "roles": roles, "values": own}


def _choices(knobs: Any, path: str | None) -> list[Any]:
    """Returns the values that a knob offers for the setting at `path`; [] if it has no knob with a choice."""
    knob = knobs.get(path) if isinstance(knobs, Mapping) else None
    choice = knob.get("choice") if isinstance(knob, Mapping) else None
    return choice if isinstance(choice, list) else []


def _spelt(words: Mapping[str, Sequence[Setting]], mentioned: Sequence[Any]) -> dict[str, Setting]:
    """Returns a spelling for each of the tuner's values: the one that is `mentioned`, else the first."""
    used = set(map(repr, mentioned))  # the text "32" and the number differ
    return {
        ours: next((word for word in spellings if repr(word) in used), spellings[0])
        for ours, spellings in words.items()
    }
