"""Every path in the directory of a session, down to the directories of its trials, models and trainings."""

from dataclasses import dataclass
from pathlib import Path

from autotune.storage.trial_dir import ComparisonDir, Entry, ModelDir, TrainingDir, TrialDir


@dataclass(frozen=True)
class SessionDir:
    """The directory `root` of one search, and what is in it."""

    root: Path

    info_file = Entry("session.json")
    space_file = Entry("space.yaml")
    study_file = Entry("study.db")
    lock_file = Entry("lock")
    threshold_file = Entry("threshold.json")  # what running trials have to be able to reach
    stop_file = Entry("stop")  # exists when running trials should close, to be resumed another day
    ray_dir = Entry("ray")  # Ray Tune's scratch space; nothing in it outlives a run
    report_file = Entry("report.html")
    trials_dir = Entry("trials")

    @property
    def name(self) -> str:
        return self.root.name

    def tracker_dir(self, name: str) -> Path:
        """The directory in which a tracker keeps its files."""
        return self.root / name

    def trial_dir(self, number: int) -> TrialDir:
        return TrialDir(self.trials_dir / f"{number:04d}")

    @property
    def comparison(self) -> ComparisonDir:
        return ComparisonDir(self.root / "comparison")

    def model_dir(self, label: str) -> ModelDir:
        return self.comparison.model(label)

    def training_dir(self, number: int | None) -> TrainingDir:
        """Returns the default directory of a whole training with trial `number`, or with the winner."""
        return TrainingDir(self.root / "training" / ("winner" if number is None else f"trial-{number}"))
