"""Every path in the directory of a session, down to the directories of its trials, models and trainings."""

from dataclasses import dataclass
from pathlib import Path

from autotune.storage.trial_dir import ComparisonDir, ModelDir, TrainingDir, TrialDir


@dataclass(frozen=True)
class SessionDir:
    """The directory `root` of one search, and what is in it."""

    root: Path

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def info_file(self) -> Path:
        return self.root / "session.json"

    @property
    def space_file(self) -> Path:
        return self.root / "space.yaml"

    @property
    def study_file(self) -> Path:
        return self.root / "study.db"

    @property
    def lock_file(self) -> Path:
        return self.root / "lock"

    @property
    def threshold_file(self) -> Path:
        """What running trials have to be able to reach."""
        return self.root / "threshold.json"

    @property
    def stop_file(self) -> Path:
        """Exists when running trials should close, to be resumed another day."""
        return self.root / "stop"

    @property
    def ray_dir(self) -> Path:
        """Ray Tune's scratch space; nothing in it outlives a run."""
        return self.root / "ray"

    @property
    def tensorboard_dir(self) -> Path:
        return self.root / "tensorboard"

    @property
    def wandb_dir(self) -> Path:
        """W&B's own, and in it what tells this session's runs from another's of the same name."""
        return self.root / "wandb"

    @property
    def wandb_key_file(self) -> Path:
        return self.wandb_dir / "session-key"

    @property
    def report_file(self) -> Path:
        return self.root / "report.html"

    @property
    def trials_dir(self) -> Path:
        return self.root / "trials"

    def trial_dir(self, number: int) -> TrialDir:
        return TrialDir(self.trials_dir / f"{number:04d}")

    @property
    def comparison(self) -> ComparisonDir:
        return ComparisonDir(self.root / "comparison")

    def model_dir(self, label: str) -> ModelDir:
        return self.comparison.model(label)

    def training_dir(self, number: int | None) -> TrainingDir:
        """Where the whole training with trial `number` is by default; None: with the winner."""
        return TrainingDir(self.root / "training" / ("winner" if number is None else f"trial-{number}"))
