"""All paths in a session's directory, down to the directories of its trials, models and trainings."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

ASIDE = ".aside-"  # precedes a number in the names of files and directories set aside


class PathEntry:
    """Descriptor for a class with a `root`: the path `root / name`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, place: Any, owner: object = None) -> Path:
        path: Path = place.root / self._name
        return path


@dataclass(frozen=True)
class TrialDir:
    """The directory `root` of one trial or training, and its files."""

    root: Path

    work = PathEntry("work")  # the workload's directory, with its checkpoints
    identity_file = PathEntry("trial.json")
    log = PathEntry("log")  # the output of the trial's process
    records_file = PathEntry("records.jsonl")
    slices_file = PathEntry("slices.jsonl")  # the measurements of a race, one round per line
    verdict_file = PathEntry("verdict.json")

    def make(self) -> None:
        """Creates the directory and its parent, but not a deleted session."""
        self.root.parent.mkdir(exist_ok=True)
        self.root.mkdir(exist_ok=True)

    def member(self, number: int) -> "TrialDir":
        """Returns the directory of a race's member, which has the settings of trial `number`."""
        return TrialDir(self.root / f"member-{number}")


@dataclass(frozen=True)
class ModelDir(TrialDir):
    """The directory of a compared model, trained there like a trial, and scored."""

    plan_file = PathEntry("plan.json")  # the provenance of its figures
    result_file = PathEntry("model.json")
    reports_file = PathEntry("reports.jsonl")  # the texts that the model wrote, in the workload's format

    @property
    def name(self) -> str:
        return self.root.name


@dataclass(frozen=True)
class ComparisonDir:
    """The directory `root` of a comparison, with a directory for each model."""

    root: Path

    goal_file = PathEntry("goal.json")  # the quality that a model has to keep, if the user named one

    @property
    def models(self) -> list[ModelDir]:
        """The existing models, without those set aside."""
        return [ModelDir(place) for place in sorted(self.root.glob("*/")) if ASIDE not in place.name]


@dataclass(frozen=True)
class TrainingDir(TrialDir):
    """The directory of a whole training, which runs like a trial, but to its own end."""

    lock_file = PathEntry("lock")
    plan_file = PathEntry("plan.json")  # configuration, length, and the gain that its session promised
    events_file = PathEntry("events.jsonl")  # one event per line

    def tracker_dir(self, name: str) -> Path:
        return self.root / name


@dataclass(frozen=True)
class SessionDir:
    root: Path

    info_file = PathEntry("session.json")
    space_file = PathEntry("space.yaml")
    study_file = PathEntry("study.db")
    lock_file = PathEntry("lock")
    threshold_file = PathEntry("threshold.json")  # a running trial that cannot reach it stops
    stop_file = PathEntry("stop")  # while it exists, running trials close, to be resumed later
    nodes_file = PathEntry("nodes.json")  # of a cluster: what is known of each node
    ray_dir = PathEntry("ray")  # Ray Tune's scratch space; nothing in it outlives a run
    report_file = PathEntry("report.html")
    trials_dir = PathEntry("trials")

    @property
    def name(self) -> str:
        return self.root.name

    def tracker_dir(self, name: str) -> Path:
        return self.root / name

    def trial_dir(self, number: int) -> TrialDir:
        return TrialDir(self.trials_dir / f"{number:04d}")

    @property
    def comparison(self) -> ComparisonDir:
        return ComparisonDir(self.root / "comparison")

    def model_dir(self, label: str) -> ModelDir:
        return ModelDir(self.comparison.root / label)

    def training_dir(self, number: int | None) -> TrainingDir:
        """Returns the default directory of a whole training of trial `number`; None: of the winner."""
        return TrainingDir(self.root / "training" / ("winner" if number is None else f"trial-{number}"))
