"""The metric of a training's records, and how often its own settings have it evaluated. Pure.

The tuner schedules the evaluations of a trial itself; the cadence here is that of the user's training.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.core.settings import Config
from autotune.space import following
from autotune.workloads import registry

if TYPE_CHECKING:  # would be a cycle
    from autotune.space.space import Space


@dataclass(frozen=True)
class Counting:
    """The search space's rules for reading the records of a trial."""

    quality: str  # the key that only the record of an evaluation has
    minimize: bool  # lower qualities are better
    unit: str  # counted as samples
    counts_evaluations: bool  # evaluations are part of the speed
    samples_per_evaluation: int | None  # in the user's own training; None: as in the trial


def counting(space: "Space", config: Config) -> Counting:
    """Returns the rules for reading the records of a trial of `config`."""
    goal = space.objective
    return Counting(
        quality=goal.quality,
        minimize=goal.minimize is not None,
        unit=space.unit,
        counts_evaluations=goal.counts_evaluations,
        samples_per_evaluation=samples(space, config),
    )


def setting(space: "Space") -> str | None:
    """Returns the tuner's name of the setting for the evaluation interval; None if there is none."""
    return space.evaluate_every or registry.cadence(registry.label(space.workload)).setting


def samples(space: "Space", config: Config) -> int | None:
    """Returns the work between two evaluations with `config`, in the space's unit; None if unknown.

    `evaluate_every` counts steps of the baseline's effective batch, whatever batch `config` has. A workload's
    own setting is taken unchanged, and only counts samples.
    """
    return _by_settings(space, config) or space.training.samples_per_evaluation


def _by_settings(space: "Space", config: Config) -> int | None:
    settings, every = space.settings(config), space.evaluate_every
    if every is not None:
        steps = settings.get(every)
        return steps * space.effective_batch_size({}) if isinstance(steps, int) else None
    if space.unit != "samples":
        return None
    cadence = registry.cadence(registry.label(space.workload))
    return cadence.samples(settings, space.training.samples_per_epoch)


def interval(space: "Space", config: Config) -> tuple[str, int | float] | None:
    """Returns the user's name of the interval setting and its value under `config`; None if there is none."""
    name, settings = setting(space), space.settings(config)
    value = {**settings, **following.steps(space, settings)}.get(name) if name else None
    return (space.naming.path(name), value) if name and isinstance(value, int | float) and value else None
