"""Interface of workloads; its defaults need nothing but an entry point."""

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import yaml
from pydantic import BaseModel

from autotune.core.errors import InputError
from autotune.core.settings import SEED, KnownSetting, Setting
from autotune.workloads import code

# A generator of records, or a function that reports them and returns nothing.
Fit = Callable[[Mapping[str, Any], Path], Iterator[Mapping[str, Any]] | None]


@dataclass(frozen=True)
class Cadence:
    """The interval between a training's evaluations, as its own settings decide it."""

    setting: str | None = None  # name of the setting that decides it
    # `(settings, samples of an epoch)` -> samples between two evaluations; None if unknown.
    samples: Callable[[Mapping[str, Setting], int | None], int | None] = lambda *_: None


class InFile(NamedTuple):
    """Values by path for a file, and the `names` of the settings that they come from."""

    values: Mapping[str, Any]
    names: Sequence[str]


class OwnFile:
    """Settings as plain YAML; the default for workloads without a config format."""

    format: ClassVar[str] = "yaml"  # default export format
    name: ClassVar[str] = "best.yaml"  # default file name

    def text(self, settings: Mapping[str, Any]) -> str:
        """Returns the file's text; `settings` are in the user's names and shape."""
        return yaml.safe_dump(dict(settings), sort_keys=False)

    def recognises(self, values: Mapping[str, Any]) -> bool:
        """Returns True if these are the `values` of such a file, from which a training can start."""
        return False

    def trains_with(self, file: Path) -> str | None:
        """Returns the command line that trains with `file`; None if unknown."""
        return None

    def command(self, settings: Mapping[str, Any]) -> str | None:
        """Returns the user's own command line with these settings; None if it cannot express them all."""
        return None

    def put_in(self, file: Path, settings: Mapping[str, Any]) -> InFile | None:
        """Returns a trial's values for the user's `file`; None if the workload does not write it."""
        return None


class Program(Protocol):
    """Command-line trainer, callable without the tuner."""

    def evaluate(self, workdir: Path, settings: Mapping[str, Setting], reports: Path) -> list[str]:
        """Returns the command that scores the best checkpoint in `workdir` on the test split.

        The command writes the model's outputs to `reports`, for `Workload.report_section`, and prints a JSON
        object of scores, named as in evaluation records but without `val_`. Other keys are costs (`studies`,
        `seconds`, `reports_per_s`, `peak_memory_bytes`), `parameters` (count), `<score>_items` (one value per
        study, whose mean is the score), and `collapsed` (the output does not depend on the input).
        """


class OwnTable(Protocol):
    """Table of text cells; the columns with an index in `numeric` are right-aligned."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[int]
    note: str  # explanation of the figures, or nothing
    is_detail: bool  # the page folds the table, and the Markdown omits it


class OwnSection(Protocol):
    """Section of a report; a dataclass, whose fields go into the report's JSON."""

    title: str
    tables: Sequence[OwnTable]

    def html(self) -> str:
        """Returns the HTML below the tables, with untrusted text escaped."""


@dataclass(frozen=True)
class Workload:
    """A training, run through `entry_point`, a function `fit(config, workdir)` that yields records."""

    entry_point: str
    places: ClassVar[frozenset[str]] = frozenset()  # names of settings that are paths on this machine
    # Knowledge of its own settings, and overrides for common ones: see `KnownSetting`.
    known_settings: ClassVar[tuple[KnownSetting, ...]] = ()
    settings_model: ClassVar[type[BaseModel] | None] = None  # its settings with their types, if known
    # Settings of each model, by the name that users may ask for.
    models: ClassVar[Mapping[str, Mapping[str, Setting]]] = {}
    cadence: ClassVar[Cadence] = Cadence()  # of the evaluations of the user's own training
    epochs: ClassVar[str | None] = None  # the name of the setting that counts epochs
    validation_size: ClassVar[str | None] = None  # the score that holds the number of evaluated samples
    program: ClassVar[Program | None] = None  # scores its models on the test split

    @property
    def value(self) -> str | dict[str, Any]:
        """The workload as a search space specifies it, from which a trial's process loads it."""
        return self.entry_point

    @property
    def fit(self) -> Fit:
        """The training function; takes settings in the user's names and shape, and a checkpoint directory."""
        module, _, function = self.entry_point.partition(":")
        fit: Fit = getattr(importlib.import_module(module), function)
        return fit

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that the fork server imports once, so that trials start without importing them."""
        return (self.entry_point.partition(":")[0],)

    @property
    def python(self) -> str | None:
        """Path of the script's own Python; None if it runs in the tuner's Python."""
        return None

    @property
    def own_file(self) -> OwnFile:
        """Format of a file that repeats a training without the tuner."""
        return OwnFile()

    def report_section(self, place: Path, reports: Mapping[str, Path], samples: int) -> OwnSection | None:
        """Returns the workload's section of a session's report; None if it has none.

        `reports` are the files that `Program.evaluate` wrote, by model, below `place`, a directory to which
        the user may add files. `samples` is the number of test samples to show.
        """
        return None

    def revision(self) -> str:
        """Returns a fingerprint of the code: see `code.revision_of_module`."""
        return code.revision_of_module(self.entry_point.partition(":")[0])

    def data_fingerprint(self, settings: Mapping[str, Setting]) -> str | None:
        """Returns a fingerprint of the data in `settings`; None if unknown. Must be quick."""
        return None

    def training_samples(self, settings: Mapping[str, Setting]) -> int | None:
        """Returns the samples of the whole training under `settings`; None if unknown. Must be quick."""
        return None

    def samples_per_epoch(self, settings: Mapping[str, Setting]) -> int | None:
        """Returns the samples of an epoch; None if unknown. Must be quick."""
        return None

    def with_seed(self, settings: Mapping[str, Setting], repeat: int) -> dict[str, Setting]:
        """Returns `settings` with the seed raised by `repeat`."""
        return {**settings, SEED: int(settings.get(SEED) or 0) + repeat} if repeat else dict(settings)

    def complete(self, baseline: Mapping[str, Setting]) -> dict[str, Setting]:
        """Returns the baseline with defaults and required settings; raises InputError if one is invalid."""
        return dict(baseline)

    def check(self, settings: Mapping[str, Setting]) -> list[str]:
        """Returns notes for the user about a run with `settings`; raises InputError if it cannot start."""
        return []

    def takes(self, name: str) -> bool:
        """Returns True if the workload is known to use the user's setting `name`."""
        return self.settings_model is not None and name in self.settings_model.model_fields

    def require_gpus(self, count: float) -> None:
        """Raises InputError if a trial cannot use `count` GPUs."""

    def require_unit(self, unit: str) -> None:
        """Raises InputError if the workload does not count its work in `unit`."""

    def require_comparable(self, knobs: Collection[str], quality: str, *, minimize: bool = False) -> None:
        """Raises InputError if nothing measures `quality`, or if a knob changes its reference data."""

    def for_trial(
        self, settings: Mapping[str, Setting], samples: int, evaluations: int, quality: str
    ) -> dict[str, Setting]:
        """Returns the settings of a trial over `samples`, with `evaluations` evaluations of `quality`."""
        return dict(settings)

    @property
    def ends_itself(self) -> bool:
        """True if a training ends by itself; otherwise it may run until it is stopped."""
        return False

    def for_training(self, settings: Mapping[str, Setting], samples: int | None) -> dict[str, Setting]:
        """Returns the settings of a whole training; raises InputError if its length is needed and unknown."""
        if samples is None and not self.ends_itself:
            rule = "has to say how long the whole training is"
            raise InputError(f"training.samples: {rule}: {self.entry_point} trains until it is stopped")
        return dict(settings)
