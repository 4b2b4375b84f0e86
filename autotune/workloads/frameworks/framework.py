"""What is known of a framework: whose arguments are settings, and what they are to the tuner."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.core.settings import Known, Setting
from autotune.workloads.base import Cadence

_NOTHING = object()
# `(settings, samples, evaluations, quality)` of a trial -> what it is given besides, by the tuner's names.
ForTrial = Callable[[Mapping[str, Setting], int, int, str], Mapping[str, Setting]]


def _nothing(
    settings: Mapping[str, Setting], samples: int, evaluations: int, quality: str
) -> dict[str, Setting]:
    del settings, samples, evaluations, quality
    return {}


@dataclass(frozen=True)
class Framework:
    """A `kind` of workload.

    Settings below one of the `objects` are arguments of such an object, wherever the script makes one.
    `roles` are the paths of settings by what the tuner calls them, and `words` what the framework calls the
    tuner's values, each in every spelling that it takes: both hold where a search space says nothing else. A
    baseline without the path of a role may have one of the `other_roles`. A training writes its `checkpoint`,
    a path in the trial's directory or a pattern of one, and resumes from it by itself. `cadence` is how often
    it evaluates, by its own arguments.
    """

    kind: str
    objects: tuple[str, ...]
    roles: Mapping[str, str]
    checkpoint: str
    words: Mapping[str, Mapping[str, Sequence[Setting]]] = field(default_factory=dict)
    known: tuple[Known, ...] = ()
    units: tuple[str, ...] = ("samples",)  # of work, in which it can be counted when there is an evaluation
    other_roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    for_trial: ForTrial = _nothing
    cadence: Cadence = field(default_factory=Cadence)

    def completed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The `values` of a search space with the roles and words that it leaves out.

        A setting has a role by default where the baseline has it, and no other setting has the role.
        """
        given, baseline = values.get("roles", {}), values.get("baseline")
        if not isinstance(given, Mapping) or not isinstance(baseline, Mapping):
            return dict(values)  # for the search space to refuse
        roles = {
            role: path
            for role, path in self._paths(baseline).items()
            if role not in given
            and path not in given.values()
            and role not in baseline
            and _has(baseline, path)
        }
        said, whole = values.get("values", {}), {**roles, **given}
        words = {
            role: _spelt(found, _mentioned(values, whole[role]))
            for role, found in self.words.items()
            if whole.get(role) in self._either(role)
        }
        return {
            **values,
            "roles": whole,
            "values": {**words, **said} if isinstance(said, Mapping) else said,
        }

    def _paths(self, baseline: Mapping[str, Any]) -> dict[str, str]:
        """The path of each role that the baseline may have: one that it has, where there are several."""
        return {
            role: next((either for either in self._either(role) if _has(baseline, either)), path)
            for role, path in self.roles.items()
        }

    def _either(self, role: str) -> tuple[str, ...]:
        return (self.roles[role], *self.other_roles.get(role, ()))


def _has(nested: Any, path: str) -> bool:
    return _at(nested, path) is not _NOTHING


def _at(nested: Any, path: str) -> Any:
    """What is at a dotted path, whose names may be nested or written in one."""
    if not isinstance(nested, Mapping):
        return _NOTHING
    if path in nested:
        return nested[path]
    below = (_at(inner, path[len(name) + 1 :]) for name, inner in _above(nested, path))
    return next((found for found in below if found is not _NOTHING), _NOTHING)


def _above(nested: Mapping[str, Any], path: str) -> list[tuple[str, Any]]:
    return [(str(name), inner) for name, inner in nested.items() if path.startswith(f"{name}.")]


def _mentioned(values: Mapping[str, Any], path: str) -> list[Any]:
    """The words that a search space has for the setting at `path`."""
    knobs = values.get("knobs")
    knob = knobs.get(path) if isinstance(knobs, Mapping) else None
    choice = knob.get("choice") if isinstance(knob, Mapping) else None
    return [_at(values["baseline"], path), *(choice if isinstance(choice, list) else [])]


def _spelt(words: Mapping[str, Sequence[Setting]], mentioned: Sequence[Any]) -> dict[str, Setting]:
    """One word for each of the tuner's values: a spelling that is mentioned, else the first."""
    said = set(map(repr, mentioned))  # the text "32" is another spelling than the number
    return {
        ours: next((word for word in spellings if repr(word) in said), spellings[0])
        for ours, spellings in words.items()
    }
