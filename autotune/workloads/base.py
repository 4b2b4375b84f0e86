"""The least that is known of any workload: its entry point. Other kinds say more by overriding."""

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from autotune.core.errors import InputError
from autotune.core.settings import SEED, Known, Setting
from autotune.workloads import code
from autotune.workloads.command.calls import Call
from autotune.workloads.own_file import OwnFile
from autotune.workloads.own_section import OwnSection
from autotune.workloads.program import Program

# A generator of records, or a function that reports them and returns nothing.
Fit = Callable[[Mapping[str, Any], Path], Iterator[Mapping[str, Any]] | None]


# `(settings, samples of an epoch)` -> samples between two evaluations; None for what is not known.
BetweenEvaluations = Callable[[Mapping[str, Setting], int | None], int | None]


def _not_said(settings: Mapping[str, Setting], epoch: int | None) -> int | None:
    del settings, epoch
    return None


@dataclass(frozen=True)
class Cadence:
    """How often a training is evaluated by its own settings, of which one is called `setting`."""

    setting: str | None = None
    samples: BetweenEvaluations = _not_said


@dataclass(frozen=True)
class Workload:
    """`entry_point` names a function `fit(config, workdir)` that trains and yields records."""

    entry_point: str

    @property
    def value(self) -> str | dict[str, Any]:
        """What a search space calls it, whole: the process of a trial loads it by that."""
        return self.entry_point

    @property
    def fit(self) -> Fit:
        """What trains with settings, in the user's names and shape, and a directory for its checkpoint."""
        module, _, function = self.entry_point.partition(":")
        fit: Fit = getattr(importlib.import_module(module), function)
        return fit

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules that the trials' fork server imports once, so that a trial starts without importing."""
        return (self.entry_point.partition(":")[0],)

    def python_with_torch(self, settings: Mapping[str, Setting]) -> Call | None:
        """The Python that imports torch within a trial's memory limit; None if a trial is born with torch."""
        del settings
        return None

    @property
    def python(self) -> str | None:
        """The Python that its script has of its own; None: this one."""
        return None

    @property
    def places(self) -> frozenset[str]:
        """Settings that say where something lies on this machine."""
        return frozenset()

    @property
    def known_settings(self) -> tuple[Known, ...]:
        """What is known of its own settings, or of common ones better: see `settings.Known`."""
        return ()

    @property
    def models(self) -> Mapping[str, Mapping[str, Setting]]:
        """The settings of each model that can be asked for by its name."""
        return {}

    @property
    def validation_size(self) -> str | None:
        """The score that says over how many samples an evaluation was; None: none does."""
        return None

    @property
    def program(self) -> Program | None:
        """What scores its models on the test split; None where nothing does."""
        return None

    @property
    def own_file(self) -> OwnFile:
        """What trains with its settings again, without the tuner."""
        return OwnFile()

    def report_section(self, place: Path, reports: Mapping[str, Path], samples: int) -> OwnSection | None:
        """Returns its own section of a session's report; None if it has none.

        `reports` are the files that `Program.evaluate` has written, by model, and lie below `place`, a
        directory that the user may add files to. The section shows so many `samples` of the test split.
        """
        del place, reports, samples
        return None

    def revision(self) -> str:
        """A fingerprint of the code: see `code.revision_of_module`."""
        return code.revision_of_module(self.entry_point.partition(":")[0])

    def data_fingerprint(self, settings: Mapping[str, Setting]) -> str | None:
        """What identifies the data of `settings`; None where that is not known. It has to be quick."""
        del settings
        return None

    def training_samples(self, settings: Mapping[str, Setting]) -> int | None:
        """Samples of the whole training that `settings` are for; None: not known. It has to be quick."""
        del settings
        return None

    @property
    def cadence(self) -> Cadence:
        """How often the user's own training is evaluated."""
        return Cadence()

    def samples_per_epoch(self, settings: Mapping[str, Setting]) -> int | None:
        """Samples of an epoch; None: not known. It has to be quick."""
        del settings
        return None

    def lasting(self, settings: Mapping[str, Setting], epochs: int) -> dict[str, Setting]:
        """`settings` of a training of so many `epochs`; unchanged where none of them says how many."""
        del epochs
        return dict(settings)

    def with_seed(self, settings: Mapping[str, Setting], repeat: int) -> dict[str, Setting]:
        """`settings` with the seed of the `repeat`-th run, 0 for their own."""
        return {**settings, SEED: int(settings.get(SEED) or 0) + repeat} if repeat else dict(settings)

    def fill(self, baseline: Mapping[str, Setting]) -> dict[str, Setting]:
        """`baseline` with what it cannot do without and the workload can give: data to try it on, say."""
        return dict(baseline)

    def complete(self, baseline: Mapping[str, Setting]) -> dict[str, Setting]:
        """Every setting of the baseline, defaults filled in; raises InputError for a wrong one."""
        return dict(baseline)

    def check(self, settings: Mapping[str, Setting]) -> list[str]:
        """What the user should know before a run with `settings`; raises InputError where it cannot start."""
        del settings
        return []

    def settings_model(self) -> type[BaseModel] | None:
        """The settings that it takes, with their types; None where they are not known."""
        return None

    def takes(self, name: str) -> bool:
        """Whether it is known to make use of a setting that the user calls `name`."""
        model = self.settings_model()
        return model is not None and name in model.model_fields

    def require_gpus(self, count: float) -> None:
        """Raises InputError where the workload cannot make use of `count` GPUs a trial."""

    def require_unit(self, unit: str) -> None:
        """Raises InputError where nothing counts work in that `unit`."""

    def require_comparable(self, knobs: Collection[str], quality: str, *, minimize: bool = False) -> None:
        """Raises InputError where nothing measures `quality`, or a knob would change its references.

        `minimize` says that less of it is better.
        """

    def for_trial(
        self, settings: Mapping[str, Setting], samples: int, evaluations: int, quality: str
    ) -> dict[str, Setting]:
        """The settings of a trial of `samples` samples, whose `quality` is asked for `evaluations` times."""
        del samples, evaluations, quality
        return dict(settings)

    @property
    def ends_itself(self) -> bool:
        """Whether its training comes to an end; else it may run until it is stopped."""
        return False

    def for_training(self, settings: Mapping[str, Setting], samples: int | None) -> dict[str, Setting]:
        """The settings of the whole training, of `samples` samples where that is known.

        Raises InputError where it has to be known, and is not.
        """
        if samples is None and not self.ends_itself:
            rule = "has to say how long the whole training is"
            raise InputError(f"training.samples: {rule}: {self.entry_point} trains until it is stopped")
        return dict(settings)
