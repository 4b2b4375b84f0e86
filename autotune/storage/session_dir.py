"""Every path in a session's directory, down to the directories of its trials, models and trainings."""

from dataclasses import dataclass
from pathlib import Path

from autotune.storage.trial_dir import ComparisonDir, Entry, ModelDir, TrainingDir, TrialDir


@dataclass(frozen=True)
class SessionDir:
    """The directory `root` of one search, and its files."""

    root: Path

    info_file = Entry("session.json")
    space_file = Entry("space.yaml")
    study_file = Entry("study.db")
    lock_file = Entry("lock")
    threshold_file = Entry("threshold.json")  # a running trial that cannot reach it stops
    stop_file = Entry("stop")  # while it exists, running trials close, to be resumed later
    ray_dir = Entry("ray")  # Ray Tune's scratch space; nothing in it outlives a run
    report_file = Entry("report.html")
    trials_dir = Entry("trials")

    @property
    def name(self) -> str:
        return self.root.name

    def tracker_dir(self, name: str) -> Path:
        """Returns the directory for the files of a tracker."""
        return self.root / name

    def trial_dir(self, number: int) -> TrialDir:
        return TrialDir(self.trials_dir / f"{number:04d}")

    @property
    def comparison(self) -> ComparisonDir:
        return ComparisonDir(self.root / "comparison")

    def model_dir(self, label: str) -> ModelDir:
        return self.comparison.model(label)

    def training_dir(self, number: int | None) -> TrainingDir:
        """Returns the default directory of a whole training of trial `number`, None: of the winner."""
        return TrainingDir(self.root / "training" / ("winner" if number is None else f"trial-{number}"))
