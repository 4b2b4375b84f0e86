"""The results of a comparison of precisions: models trained alike, and their scores."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from autotune.core import files, units
from autotune.core.measurement import Measurement
from autotune.core.settings import PRECISION, Config
from autotune.core.trial import Outcome, Status
from autotune.judging.measurement import estimates
from autotune.judging.measurement.estimates import Figure
from autotune.space.sections import Objective
from autotune.storage.json_file import JsonFile
from autotune.storage.layout import ComparisonDir
from autotune.storage.store import StoredSession

BASELINE, FP32 = "baseline", "fp32"
_LAST_PART = 0.1  # of the steps: one alone is noise
Runs = Mapping[str, Sequence["Model"]]  # by label, a model for every seed


def name_of(label: str, seed: int) -> str:
    """Returns the name of a model and of its directory: `bf16`, or `bf16-seed-1`."""
    return f"{label}-seed-{seed}" if seed else label


@dataclass(frozen=True)
class StepSummary:
    """The summary of a training's steps; None if the records do not say."""

    count: int = 0
    bad: int | None = None  # loss not finite, or counted as bad by the trainer
    overflows: int | None = None  # norm not finite though the loss is: fp16's loss scaling skips the update
    final_loss: float | None = None  # mean training loss over the last tenth of the steps that have one


@dataclass(frozen=True)
class Model:
    """A model trained to be compared, in one precision; its scores and items cover the whole test split."""

    label: str
    config: Config
    outcome: Outcome  # of its training; no `scores` unless completed
    training: Measurement
    samples: int
    trial: int | None = None  # whose checkpoint an older version has reused; None: trained for the comparison
    scores: Annotated[Mapping[str, Any], AfterValidator(units.numbers)] = field(default_factory=dict)
    reports_per_s: float | None = None  # while writing reports
    peak_memory_bytes: int | None = None  # while writing reports
    seed: int = 0  # added to that of the settings
    items: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # per study, by score: their mean
    collapsed: bool = False  # its output hardly depends on the input
    steps: StepSummary = field(default_factory=StepSummary)  # of its training
    checkpoint_bytes: int | None = None  # left by the training in its directory
    parameters: int | None = None

    @property
    def name(self) -> str:
        return name_of(self.label, self.seed)

    @property
    def completed(self) -> bool:
        return self.outcome.status is Status.COMPLETED


RESULT = JsonFile(Model)  # as it is in a model's directory


def summarise(records: Iterable[Mapping[str, Any]]) -> StepSummary:
    """Summarises the steps in a training's `records`; for repeated steps the last record counts."""
    last = {record["samples"]: record for record in records if "train_loss" in record}
    steps = [last[samples] for samples in sorted(last)]
    losses = [loss for step in steps if (loss := units.number(step["train_loss"])) is not None]
    tail = losses[-math.ceil(_LAST_PART * len(losses)) :]
    bad = [
        (units.number(step.get("bad_steps")) or 0) > 0 or units.number(step["train_loss"]) is None
        for step in steps
    ]
    overflows = [
        not is_bad and units.number(step["grad_norm"]) is None
        for step, is_bad in zip(steps, bad, strict=True)
        if "grad_norm" in step
    ]
    return StepSummary(
        count=len(steps),
        bad=sum(bad) if steps else None,
        overflows=sum(overflows) if overflows else None,
        final_loss=math.fsum(tail) / len(tail) if tail else None,
    )


def runs(root: Path) -> dict[str, tuple[Model, ...]]:
    """Returns the models below `root` by label, baseline first, and by seed within a label."""
    models = [model for place in ComparisonDir(root).models if (model := RESULT.read(place.result_file))]
    ordered = sorted(models, key=lambda model: (model.label != BASELINE, model.label, model.seed))
    return {m.label: tuple(other for other in ordered if other.label == m.label) for m in ordered}


def first_models(models: Runs) -> dict[str, Model]:
    """Returns a model for each label: the first that has completed, or else the first."""
    return {label: next((m for m in same if m.completed), same[0]) for label, same in models.items()}


def seeds(models: Runs) -> int:
    """Returns the number of seeds, including those that some labels lack."""
    return max((model.seed + 1 for same in models.values() for model in same), default=0)


def throughput(models: Sequence[Model]) -> Figure | None:
    """Returns training samples per second: the mean over models, or one model's own interval."""
    rates = [measured for model in models if (measured := model.training.throughput)]
    if len(rates) == 1:
        return estimates.throughput_figure(rates[0])
    return estimates.mean([rate.samples_per_s for rate in rates])


def name_on_test(quality: str) -> str:
    """Returns the name of a `quality` on the test split: `loss` for `val_loss`, which names its split."""
    return quality.removeprefix("val_")


def means(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the means of the figures that all models have, by name."""
    common = [name for name in figures[0] if all(name in other for other in figures)] if figures else []
    return {name: math.fsum(values[name] for values in figures) / len(figures) for name in common}


def loss_over_fp32(model: Model, models: Runs) -> float | None:
    """Returns by how much the final training loss exceeds the same model's in fp32 (0.01: 1%), if known."""
    wide = {**model.config, PRECISION: FP32}
    if wide == model.config:
        return None
    same = (m for seeds in models.values() for m in seeds if m.config == wide and m.seed == model.seed)
    reference = next((loss for m in same if (loss := m.steps.final_loss)), None)
    loss = model.steps.final_loss
    return None if loss is None or reference is None else loss / reference - 1


def write_keep(file: Path, keep: float | None) -> None:
    """Saves the share of the baseline's gain to keep, if the user gave one; None: the search space's."""
    file.parent.mkdir(exist_ok=True)
    files.write_whole(file, json.dumps({"keep": keep}))


@dataclass(frozen=True)
class ComparisonResults:
    models: Runs = field(default_factory=dict)
    reports: Mapping[str, Path] = field(default_factory=dict)  # by label, of its `first` model
    goal: Objective = field(default_factory=Objective)  # decides if a model keeps the quality


def load(session: StoredSession, goal: Objective) -> ComparisonResults:
    """Returns the results of comparisons in `session`, whose search has the `goal`."""
    models = runs(session.comparison.root)
    names = {label: model.name for label, model in first_models(models).items()}
    files_of = {label: session.model_dir(name).reports_file for label, name in names.items()}
    reports = {label: file for label, file in files_of.items() if file.is_file()}
    with suppress(OSError, ValueError, AttributeError):
        keep = units.number(json.loads(files.read(session.comparison.goal_file)).get("keep"))
        if keep is not None:  # the comparison's own share
            goal = goal.model_copy(update={"keep": keep, "within": None})
    return ComparisonResults(models, reports, goal)
