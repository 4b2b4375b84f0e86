"""The plan of a training: written before it begins, read when it is resumed."""

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter

from autotune.core import files, units
from autotune.core.errors import InputError
from autotune.core.measurement import Metric
from autotune.core.settings import Config, Setting
from autotune.judging.accounts.promise import Promise
from autotune.space.sections import Objective
from autotune.storage.layout import TrainingDir


@dataclass(frozen=True)
class TrainingPlan:
    """The configuration and length of a whole training, and its session's promise."""

    workload: str
    config: Config  # the values of the knobs
    settings: Mapping[str, Setting]  # all settings of the workload, under the tuner's names
    samples: int | None  # of the whole training, in `unit`; None: unknown
    promise: Promise | None = None
    changes: Mapping[str, Setting] = field(default_factory=dict)  # made since, by recovery
    _: KW_ONLY
    metric: Metric
    device: str

    @property
    def goal(self) -> Objective:
        return Objective.model_validate({"minimize" if self.metric.minimize else "quality": self.metric.name})


def write(place: TrainingDir, plan: TrainingPlan) -> None:
    files.write_whole(place.plan_file, json.dumps(asdict(plan), indent=1))


def read(place: TrainingDir) -> TrainingPlan | None:
    """Returns the plan in `place`, None if there is none; raises InputError if it is corrupt."""
    try:
        return TypeAdapter(TrainingPlan).validate_python(json.loads(files.read(place.plan_file)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        raise InputError(f"{place.plan_file}: is not as it was written; train in another directory") from None


def is_training(root: Path) -> bool:
    """Returns True if a training was begun in `root`."""
    place = TrainingDir(root)
    return place.plan_file.is_file() and place.events_file.is_file()


def resume(begun: TrainingPlan, plan: TrainingPlan, place: TrainingDir) -> TrainingPlan:
    """Returns `plan` with the promise and changes of `begun`; raises InputError if the trainings differ."""
    names = {**begun.settings, **plan.settings}
    pairs = [
        ("workload", begun.workload, plan.workload),
        ("quality", begun.metric.name, plan.metric.name),
        ("minimize", begun.metric.minimize, plan.metric.minimize),
        ("unit", begun.metric.unit, plan.metric.unit),
        *((name, begun.settings.get(name), plan.settings.get(name)) for name in names),
    ]
    differ = [f"{name} {units.quote(was)}, now {units.quote(now)}" for name, was, now in pairs if was != now]
    if differ:
        rule = "was begun with other settings"
        raise InputError(f"{place.root}: {rule}: {'; '.join(differ)}; train in another directory")
    return replace(plan, promise=begun.promise, changes=begun.changes)
