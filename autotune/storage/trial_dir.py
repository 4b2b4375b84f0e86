"""Every path in the directory of a trial, and of a model that was trained to be compared."""

from dataclasses import dataclass
from pathlib import Path

ASIDE = ".aside-"  # in the name of what was set aside, before a number


@dataclass(frozen=True)
class TrialDir:
    """The directory `root` of one trial, or of one training by itself, and what is in it."""

    root: Path

    @property
    def work(self) -> Path:
        """The workload's own: its checkpoints are here."""
        return self.root / "work"

    @property
    def identity_file(self) -> Path:
        """Says of which trial of which session all of the directory is."""
        return self.root / "trial.json"

    @property
    def log(self) -> Path:
        """What the trial's process prints."""
        return self.root / "log"

    @property
    def records_file(self) -> Path:
        return self.root / "records.jsonl"

    @property
    def slices_file(self) -> Path:
        """What a race has measured, a round a line."""
        return self.root / "slices.jsonl"

    @property
    def verdict_file(self) -> Path:
        return self.root / "verdict.json"

    def make(self) -> None:
        """Makes the directory and that of all trials. Of a session that was deleted none is made again."""
        self.root.parent.mkdir(exist_ok=True)
        self.root.mkdir(exist_ok=True)

    def member(self, number: int) -> "TrialDir":
        """Of a race: the directory of the settings of trial `number` in it."""
        return TrialDir(self.root / f"member-{number}")


@dataclass(frozen=True)
class ModelDir(TrialDir):
    """The directory of a model that is compared: it is trained there as a trial is, and scored."""

    @property
    def name(self) -> str:
        """What the comparison calls the model."""
        return self.root.name

    @property
    def plan_file(self) -> Path:
        """All that its figures come from."""
        return self.root / "plan.json"

    @property
    def result_file(self) -> Path:
        return self.root / "model.json"

    @property
    def reports_file(self) -> Path:
        """What the model wrote, as the workload's own program writes it."""
        return self.root / "reports.jsonl"


@dataclass(frozen=True)
class ComparisonDir:
    """The directory `root` of a comparison: one below it for each model, and these files."""

    root: Path

    def model(self, name: str) -> ModelDir:
        return ModelDir(self.root / name)

    @property
    def models(self) -> list[ModelDir]:
        """Those of the models that are there, without what was set aside."""
        return [ModelDir(place) for place in sorted(self.root.glob("*/")) if ASIDE not in place.name]

    @property
    def goal_file(self) -> Path:
        """What a model has to keep, where that was said."""
        return self.root / "goal.json"


@dataclass(frozen=True)
class TrainingDir(TrialDir):
    """The directory of a whole training, which is run as a trial is, but to its own end."""

    @property
    def lock_file(self) -> Path:
        return self.root / "lock"

    @property
    def plan_file(self) -> Path:
        """What is trained, and what was promised of it."""
        return self.root / "plan.json"

    @property
    def events_file(self) -> Path:
        """What happened to it, a line each."""
        return self.root / "events.jsonl"

    @property
    def telemetry_file(self) -> Path:
        """What the machine showed meanwhile, a sample a line."""
        return self.root / "telemetry.jsonl"

    @property
    def report_file(self) -> Path:
        """Its report, as a page."""
        return self.root / "report.html"

    @property
    def tensorboard_dir(self) -> Path:
        return self.root / "tensorboard"

    @property
    def wandb_key_file(self) -> Path:
        """Next to W&B's own: what tells its run from another's of the same name."""
        return self.root / "wandb" / "session-key"
