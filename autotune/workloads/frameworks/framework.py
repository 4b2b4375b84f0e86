"""What is known of a framework: whose arguments are settings, and what they are to the tuner."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.core.settings import Known, Setting

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
    tuner's values: both hold where a search space says nothing else. A training writes its `checkpoint`, a
    path in the trial's directory or a pattern of one, and goes on from it by itself.
    """

    kind: str
    objects: tuple[str, ...]
    roles: Mapping[str, str]
    checkpoint: str
    words: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)
    known: tuple[Known, ...] = ()
    for_trial: ForTrial = _nothing

    def completed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The `values` of a search space with the roles and words that it leaves out.

        A setting has a role by default where the baseline has it, and the role is nobody else's.
        """
        given, baseline = values.get("roles", {}), values.get("baseline")
        if not isinstance(given, Mapping) or not isinstance(baseline, Mapping):
            return dict(values)  # for the search space to refuse
        roles = {
            role: path
            for role, path in self.roles.items()
            if role not in given
            and path not in given.values()
            and role not in baseline
            and _has(baseline, path)
        }
        said, whole = values.get("values", {}), {**roles, **given}
        words = {
            role: dict(found) for role, found in self.words.items() if whole.get(role) == self.roles[role]
        }
        return {
            **values,
            "roles": whole,
            "values": {**words, **said} if isinstance(said, Mapping) else said,
        }


def _has(nested: Any, path: str) -> bool:
    for name in path.split("."):
        if not isinstance(nested, Mapping) or name not in nested:
            return False
        nested = nested[name]
    return True
