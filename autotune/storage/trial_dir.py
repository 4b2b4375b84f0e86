"""Every path in the directory of a trial, and of a model that was trained to be compared."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ASIDE = ".aside-"  # in the name of what was set aside, before a number


class _Place(Protocol):
    @property
    def root(self) -> Path: ...


class Entry:
    """Attribute of a class with a `root`: the path of the file or directory of this name in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, place: _Place, owner: object = None) -> Path:
        return place.root / self._name


@dataclass(frozen=True)
class TrialDir:
    """The directory `root` of one trial, or of one training by itself, and what is in it."""

    root: Path

    work = Entry("work")  # the workload's own: its checkpoints
    identity_file = Entry("trial.json")  # of which trial of which session everything here is
    log = Entry("log")  # what the trial's process prints
    records_file = Entry("records.jsonl")
    slices_file = Entry("slices.jsonl")  # what a race has measured, a round a line
    verdict_file = Entry("verdict.json")

    def make(self) -> None:
        """Makes the directory and that of all trials, but not that of a session that was deleted."""
        self.root.parent.mkdir(exist_ok=True)
        self.root.mkdir(exist_ok=True)

    def member(self, number: int) -> "TrialDir":
        """Returns the directory of the settings of trial `number` in a race."""
        return TrialDir(self.root / f"member-{number}")


@dataclass(frozen=True)
class ModelDir(TrialDir):
    """The directory of a model that is compared: it is trained there as a trial is, and scored."""

    plan_file = Entry("plan.json")  # all that its figures come from
    result_file = Entry("model.json")
    reports_file = Entry("reports.jsonl")  # what the model wrote, as the workload's own program writes it

    @property
    def name(self) -> str:
        """What the comparison calls the model."""
        return self.root.name


@dataclass(frozen=True)
class ComparisonDir:
    """The directory `root` of a comparison: one below it for each model, and these files."""

    root: Path

    goal_file = Entry("goal.json")  # what a model has to keep, if that was said

    def model(self, name: str) -> ModelDir:
        return ModelDir(self.root / name)

    @property
    def models(self) -> list[ModelDir]:
        """The models that are there, without what was set aside."""
        return [ModelDir(place) for place in sorted(self.root.glob("*/")) if ASIDE not in place.name]


@dataclass(frozen=True)
class TrainingDir(TrialDir):
    """The directory of a whole training, which is run as a trial is, but to its own end."""

    lock_file = Entry("lock")
    plan_file = Entry("plan.json")  # what is trained, and what was promised of it
    events_file = Entry("events.jsonl")  # what happened to it, a line each
    telemetry_file = Entry("telemetry.jsonl")  # what the machine showed meanwhile, a sample a line
    report_file = Entry("report.html")

    def tracker_dir(self, name: str) -> Path:
        """The directory in which a tracker keeps its files."""
        return self.root / name
