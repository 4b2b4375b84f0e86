"""The trial to export, and the parts of an exported file."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from autotune.core.common_names import CLIP_NORM, CLIP_VALUE, NAMES, unambiguous_names
from autotune.core.errors import printable
from autotune.core.settings import WORKERS
from autotune.core.trial import Trial
from autotune.display import rows, view
from autotune.judging.decisions.history import History
from autotune.space import configurations
from autotune.space.naming import Naming, flatten
from autotune.workloads.base import Workload


class Exported(NamedTuple):
    """The text of a file, with one line for each setting that the format cannot express."""

    text: str
    unsaid: tuple[str, ...] = ()


class Given(NamedTuple):
    """A setting with the user's path and value, and with the tuner's name and value."""

    path: str
    theirs: Any
    name: str
    ours: Any
    meaning: str  # one of `common_names`, else its own name


@dataclass(frozen=True)
class Winner:
    """The trial to export: its settings, and the evidence for them."""

    settings: Mapping[str, Any]  # in the user's shape, names and words
    naming: Naming  # translates them
    searched: frozenset[str]  # paths of the knobs, and of settings that follow them
    evidence: Mapping[str, str]  # what was measured, by name
    workload: Workload
    gpus: int = 0  # per trial; 0: trained on the CPU

    @property
    def every(self) -> list[Given]:
        named = [(path, theirs, self.naming.name(path)) for path, theirs in flatten(self.settings)]
        values = {name: theirs for _, theirs, name in named}
        return [
            Given(path, theirs, name, self.naming.value(name, theirs), _meaning(name, values))
            for path, theirs, name in named
        ]

    @property
    def has_workers(self) -> bool:
        return any(given.ours for given in self.every if given.meaning == WORKERS)

    @property
    def comment(self) -> str:
        """The evidence as comment lines for the head of a file."""
        return comment_lines(f"{name}: {fact}" for name, fact in self.evidence.items())


def _meaning(name: str, values: Mapping[str, Any]) -> str:
    """Returns the meaning of the setting `name`; for Lightning's clipping it depends on other `values`."""
    if ends_with(name, ["gradient_clip_val"]):
        algorithms = (v for key, v in values.items() if ends_with(key, ["gradient_clip_algorithm"]))
        return CLIP_VALUE if "value" in algorithms else CLIP_NORM
    return next((meaning for meaning in NAMES if ends_with(name, unambiguous_names(meaning))), name)


def ends_with(path: str, names: Collection[str]) -> bool:
    """Returns True if `path` is one of the `names`, or ends with one after a dot."""
    return any(path == name or path.endswith(f".{name}") for name in names)


def comment_lines(lines: Iterable[str]) -> str:
    """Returns the lines as comments of YAML or a shell."""
    return "".join(f"# {printable(line)}\n" for line in lines)


def from_trial(
    trial: Trial, history: History, workload: Workload, provenance: Mapping[str, Any], gpus: int = 0
) -> Winner:
    space = history.space
    evidence = {
        "trial": f"{trial.number} of session {provenance.get('session', '')}",
        "measured": view.compare_with_baseline(trial, history),
        "peak memory": rows.run_figures(history.memory(trial), space.objective).peak,
        "over": f"{space.budget.samples_per_trial:,} {space.unit} per run",
    }
    names = ("hardware", "versions", "seed", "command")
    evidence |= {name: str(provenance[name]) for name in names if name in provenance}
    settings = configurations.for_workload(space, space.settings(trial.config))
    before = dict(flatten(configurations.for_workload(space, space.settings({}))))
    other = {path for path, value in flatten(settings) if before.get(path) != value}
    return Winner(
        settings,
        space.naming,
        frozenset(other | {space.naming.path(name) for name in space.knobs}),
        evidence,
        workload,
        gpus,
    )
