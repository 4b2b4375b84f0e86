"""What to write of a trial: its settings, and where its figures come from."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from autotune.core.common_names import CLIP_NORM, CLIP_VALUE, NAMES, sure
from autotune.core.errors import printable
from autotune.core.trial import Trial
from autotune.display import view
from autotune.judging.history import History
from autotune.space.naming import Naming, flatten
from autotune.workloads.base import Workload

OFF = (False, None, "off", "none", "no")  # values of a switch


class Exported(NamedTuple):
    """A file's text, and a line for each setting that it has no place for."""

    text: str
    unsaid: tuple[str, ...] = ()


class Values(NamedTuple):
    """What a file has, nested, and a line for each setting that it has no place for."""

    values: Mapping[str, Any]
    unsaid: tuple[str, ...] = ()


class Given(NamedTuple):
    """A setting: where the user has it, the user's value, and the tuner's name and value."""

    path: str
    theirs: Any
    name: str
    ours: Any
    meaning: str  # one of `common_names`, or else its own name


@dataclass(frozen=True)
class Winner:
    """A trial's `settings` in the user's shape, names and words, which `naming` translates.

    `searched` are the paths of those that were searched, and that follow from these. `evidence` has what was
    measured, by name. A trial had so many `gpus`: 0 is a training on the CPU.
    """

    settings: Mapping[str, Any]
    naming: Naming
    searched: frozenset[str]
    evidence: Mapping[str, str]
    workload: Workload
    gpus: int = 0

    @property
    def every(self) -> list[Given]:
        """Returns the settings one by one."""
        named = [(path, theirs, self.naming.name(path)) for path, theirs in flatten(self.settings)]
        values = {name: theirs for _, theirs, name in named}
        return [
            Given(path, theirs, name, self.naming.value(name, theirs), _meaning(name, values))
            for path, theirs, name in named
        ]

    @property
    def comment(self) -> str:
        """The evidence as the first lines of a file."""
        return commented(f"{name}: {fact}" for name, fact in self.evidence.items())


def _meaning(name: str, values: Mapping[str, Any]) -> str:
    """Returns what the setting `name` means; `values` of all settings say how Lightning clips."""
    if ends_with(name, ["gradient_clip_val"]):
        algorithms = (v for key, v in values.items() if ends_with(key, ["gradient_clip_algorithm"]))
        return CLIP_VALUE if "value" in algorithms else CLIP_NORM
    return next((meaning for meaning in NAMES if ends_with(name, sure(meaning))), name)


def ends_with(path: str, names: Collection[str]) -> bool:
    """Returns whether `path` is one of the `names`, or is below something and ends so."""
    return any(path == name or path.endswith(f".{name}") for name in names)


def commented(lines: Iterable[str]) -> str:
    """A comment of YAML or a shell, a line each."""
    return "".join(f"# {printable(line)}\n" for line in lines)


def of(
    trial: Trial, history: History, workload: Workload, provenance: Mapping[str, Any], gpus: int = 0
) -> Winner:
    """What to write of `trial`."""
    space = history.space
    settings = space.for_workload(space.settings(trial.config))
    before = dict(flatten(space.for_workload(space.settings({}))))
    other = {path for path, value in flatten(settings) if before.get(path) != value}
    return Winner(
        settings,
        space.naming,
        frozenset(other | {space.naming.path(name) for name in space.knobs}),
        _evidence(trial, history, provenance),
        workload,
        gpus,
    )


def _evidence(trial: Trial, history: History, provenance: Mapping[str, Any]) -> dict[str, str]:
    space = history.space
    facts = {
        "trial": f"{trial.number} of session {provenance.get('session', '')}",
        "measured": view.measured(trial, history),
        "peak memory": view.memory(history.memory(trial)),
        "over": f"{space.budget.samples_per_trial} {space.unit} per run",
    }
    known = ("hardware", "versions", "seed", "command")
    return facts | {name: str(provenance[name]) for name in known if name in provenance}
