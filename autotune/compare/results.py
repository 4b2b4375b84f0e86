"""What a comparison of precisions has found: models trained alike, the reports they wrote and their scores.

`compare` writes it below the session, one directory a model; the report reads it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from autotune.core import files
from autotune.core.settings import Config
from autotune.core.trial import Measurement, Outcome
from autotune.storage.trial_dir import ModelDir

BASELINE = "baseline"


@dataclass(frozen=True)
class Written:
    """One study of the test split: what the model wrote, what is true, and how near they are.

    `images` are files; `scores` are of this report alone. `found` are the clinical findings that the report
    asserts, `true` those of the reference, None where nothing labels them.
    """

    id: str
    images: tuple[str, ...]
    reference: str
    report: str
    scores: Mapping[str, float] = field(default_factory=dict)
    found: tuple[str, ...] | None = None
    true: tuple[str, ...] | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        listed = {
            name: tuple(values[name]) for name in ("images", "found", "true") if values.get(name) is not None
        }
        return cls(**{**values, **listed})


@dataclass(frozen=True)
class Model:
    """A model that was trained to be compared: the baseline's, or the winner's in one precision.

    `outcome` says whether its training completed; without that there are no `scores`. `scores` are of the
    whole test split, `reports_per_s` and `peak_memory_bytes` of writing its reports. `trial` is the trial
    whose checkpoint was taken, None where it was trained for this.
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        read = {
            "outcome": Outcome.from_dict(values["outcome"]),
            "training": Measurement.from_dict(values["training"]),
        }
        return cls(**{**values, **read})


def write(place: ModelDir, model: Model) -> None:
    """Writes `model` into its `place`, whole or not at all."""
    files.write_whole(place.result_file, json.dumps(model.to_dict()))


def models(root: Path) -> dict[str, Model]:
    """The models below `root` by label, the baseline first; empty where nothing was compared."""
    found = {}
    for directory in sorted(root.glob("*/")):
        with suppress(
            OSError, ValueError, KeyError, TypeError, AttributeError
        ):  # another version's, or spoilt
            model = Model.from_dict(json.loads(ModelDir(directory).result_file.read_text(encoding="utf-8")))
            found[model.label] = model
    return dict(sorted(found.items(), key=lambda item: item[0] != BASELINE))


def written(place: ModelDir) -> Iterator[Written]:
    """The reports of the model in `place`, study by study."""
    if not place.reports_file.exists():
        return
    with place.reports_file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValueError, KeyError, TypeError):
                yield Written.from_dict(json.loads(line))
