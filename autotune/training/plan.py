"""What is trained, and what was promised of it: written before a training begins, read when it is resumed."""

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter

from autotune.core import files, units
from autotune.core.errors import InputError
from autotune.core.settings import Config, Setting
from autotune.judging.promise import Promise
from autotune.space.sections import Objective
from autotune.storage.trial_dir import TrainingDir

_SAME = ("workload", "quality", "minimize", "unit")  # for as long as a training lasts, besides its settings


@dataclass(frozen=True)
class Plan:
    """A training with `config`, the values of the knobs.

    `settings` are all that the workload gets, under the tuner's names, and `changes` those that the training
    has changed by itself since. `samples` are those of the whole training, None where nothing says how many,
    counted in the `unit`. Lower is better of a `quality` to `minimize`. It runs on the `device`. Where its
    speed `counts_evaluations` there is one after every `samples_per_evaluation`, None for as many as come.
    """

    workload: str
    config: Config
    settings: Mapping[str, Setting]
    samples: int | None
    promise: Promise | None = None
    changes: Mapping[str, Setting] = field(default_factory=dict)
    _: KW_ONLY
    quality: str
    minimize: bool
    unit: str
    device: str
    counts_evaluations: bool = False
    samples_per_evaluation: int | None = None

    @property
    def goal(self) -> Objective:
        """By what its evaluations are judged."""
        return Objective.model_validate({"minimize" if self.minimize else "quality": self.quality})


_PLAN = TypeAdapter(Plan)


def write(place: TrainingDir, plan: Plan) -> None:
    files.write_whole(place.plan_file, json.dumps(asdict(plan), indent=1))


def read(place: TrainingDir) -> Plan | None:
    """The plan of the training in `place`, None where there is none; raises InputError where it is spoilt."""
    try:
        return _PLAN.validate_python(json.loads(files.read(place.plan_file)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        raise InputError(f"{place.plan_file}: is not as it was written; train in another directory") from None


def is_training(root: Path) -> bool:
    """Whether a training was begun in `root`."""
    place = TrainingDir(root)
    return place.plan_file.is_file() and place.events_file.is_file()


def gone_on_with(known: Plan, plan: Plan, place: TrainingDir) -> Plan:
    """`plan` as it is resumed in `place`, where `known` was begun: with the changes that were made since.

    What was promised then counts. Raises InputError where another training was begun there.
    """
    names = {**known.settings, **plan.settings}
    pairs = [
        *((name, getattr(known, name), getattr(plan, name)) for name in _SAME),
        *((name, known.settings.get(name), plan.settings.get(name)) for name in names),
    ]
    differ = [f"{name} {units.shown(was)}, now {units.shown(now)}" for name, was, now in pairs if was != now]
    if differ:
        rule = "was begun with other settings"
        raise InputError(f"{place.root}: {rule}: {'; '.join(differ)}; train in another directory")
    return replace(plan, promise=known.promise, changes=known.changes)
