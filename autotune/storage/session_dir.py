"""All paths in a session's directory, down to the directories of its trials, models and trainings."""

from dataclasses import dataclass
from pathlib import Path

from autotune.storage.trial_dir import ComparisonDir, ModelDir, PathEntry, TrainingDir, TrialDir


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
