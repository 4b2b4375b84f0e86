"""What a comparison of precisions has found: models trained alike, and their scores.

`compare` writes it below the session, one directory a model; the report reads it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from autotune.compare.steps import Steps
from autotune.core import files, units
from autotune.core.settings import PRECISION, Config
from autotune.core.trial import Measurement, Outcome, Status
from autotune.judging import estimates
from autotune.judging.estimates import Figure
from autotune.space.sections import Objective
from autotune.storage.store import Session
from autotune.storage.trial_dir import ComparisonDir, ModelDir

BASELINE, FP32 = "baseline", "fp32"
_OF_VALIDATION = "val_"
Runs = Mapping[str, Sequence["Model"]]  # by label, a model for every seed


def name_of(label: str, seed: int) -> str:
    """What the model of a `seed` is called, and its directory: `bf16`, or `bf16-seed-1`."""
    return f"{label}-seed-{seed}" if seed else label


@dataclass(frozen=True)
class Model:
    """A model that was trained to be compared: the baseline's, or the winner's in one precision.

    `seed` is added to that of the settings. `outcome` says whether its training completed; without that there
    are no `scores`. These are of the whole test split, and so are `items`, for each score that has some the
    numbers, one a study, whose mean it is, and whether it is `collapsed`: the same whatever the model sees.
    `reports_per_s` and `peak_memory_bytes` are of writing its reports. `trial` is the trial whose checkpoint
    was taken, None where it was trained for this. `steps` are those of its training, `checkpoint_bytes` what
    the training has left in its directory, `parameters` how many the model has.
    """

    label: str
    config: Config
    outcome: Outcome
    training: Measurement
    samples: int
    trial: int | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    reports_per_s: float | None = None
    peak_memory_bytes: int | None = None
    seed: int = 0
    items: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    collapsed: bool = False
    steps: Steps = field(default_factory=Steps)
    checkpoint_bytes: int | None = None
    parameters: int | None = None

    @property
    def name(self) -> str:
        return name_of(self.label, self.seed)

    @property
    def completed(self) -> bool:
        return self.outcome.status is Status.COMPLETED

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        read = {
            "outcome": Outcome.from_dict(values["outcome"]),
            "training": Measurement.from_dict(values["training"]),
            "scores": units.numbers(values.get("scores", {})),
            "items": {name: tuple(found) for name, found in values.get("items", {}).items()},
            "steps": Steps(**values.get("steps", {})),
        }
        return cls(**{**values, **read})


def write(place: ModelDir, model: Model) -> None:
    """Writes `model` into its `place`, whole or not at all."""
    files.write_whole(place.result_file, json.dumps(model.to_dict()))


def read(place: ModelDir) -> Model | None:
    """The model in `place`; None where there is none, or none that can be read."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # another version's, or spoilt
        return Model.from_dict(json.loads(files.read(place.result_file)))
    return None


def runs(root: Path) -> dict[str, tuple[Model, ...]]:
    """The models below `root` by label, the baseline first; of each the seeds in their order.

    Empty where nothing was compared.
    """
    known = [model for place in ComparisonDir(root).models if (model := read(place)) is not None]
    ordered = sorted(known, key=lambda model: (model.label != BASELINE, model.label, model.seed))
    return {m.label: tuple(other for other in ordered if other.label == m.label) for m in ordered}


def first(models: Runs) -> dict[str, Model]:
    """Of each label the model of the first seed that has trained to its end; of none the first seed."""
    return {label: next((m for m in same if m.completed), same[0]) for label, same in models.items()}


def seeds(models: Runs) -> int:
    """How many seeds there are, those that some label lacks included."""
    return max((model.seed + 1 for same in models.values() for model in same), default=0)


def throughput(models: Sequence[Model]) -> Figure | None:
    """Training samples per second: the mean over models, of one with the interval of its own steps."""
    rates = [found for model in models if (found := model.training.throughput)]
    if len(rates) == 1:
        return estimates.of_run(rates[0])
    return estimates.mean([rate.samples_per_s for rate in rates])


def on_test(quality: str) -> str:
    """What the test split's score of a `quality` is called: of `val_loss`, which names its split, `loss`."""
    return quality.removeprefix(_OF_VALIDATION)


def mean_scores(models: Sequence[Model]) -> dict[str, float]:
    """The scores that all scored models have, each its mean over them."""
    scored = [model.scores for model in models if model.scores]
    common = [name for name in scored[0] if all(name in found for found in scored)] if scored else []
    return {name: math.fsum(found[name] for found in scored) / len(scored) for name in common}


def beside_fp32(model: Model, models: Runs) -> float | None:
    """How much higher than in fp32 the training loss ended: 0.01 for 1%, negative where it is lower.

    Compared with the model of the same other settings and the same seed; None where there is no such model.
    """
    wide = {**model.config, PRECISION: FP32}
    if wide == model.config:
        return None
    same = (m for seeds in models.values() for m in seeds if m.config == wide and m.seed == model.seed)
    reference = next((loss for m in same if (loss := m.steps.final_loss)), None)
    loss = model.steps.final_loss
    return None if loss is None or reference is None else loss / reference - 1


def write_keep(file: Path, keep: float | None) -> None:
    """Writes down the share of the baseline's quality that was asked for; None: the search space's."""
    file.parent.mkdir(exist_ok=True)
    files.write_whole(file, json.dumps({"keep": keep}))


@dataclass(frozen=True)
class Found:
    """All that the comparisons of a session have left.

    Of each label `reports` has the file of its `first` model; a model keeps the quality by the `goal`.
    """

    models: Runs = field(default_factory=dict)
    reports: Mapping[str, Path] = field(default_factory=dict)
    goal: Objective = field(default_factory=Objective)


def found(session: Session, goal: Objective) -> Found:
    """What was compared in `session`, whose search has the `goal`."""
    models = runs(session.comparison.root)
    files_of = {label: session.model_dir(model.name).reports_file for label, model in first(models).items()}
    reports = {label: file for label, file in files_of.items() if file.is_file()}
    return Found(models, reports, _goal(session.comparison.goal_file, goal))


def _goal(file: Path, goal: Objective) -> Objective:
    """The search's `goal` with the share to keep that the comparison was asked for, where it was."""
    try:
        keep = units.number(json.loads(files.read(file)).get("keep"))
    except (OSError, ValueError, AttributeError):
        keep = None
    return goal if keep is None else goal.model_copy(update={"keep": keep, "within": None})
