"""How the records of a training are counted, and how often its own settings have it evaluated. Pure.

A trial is evaluated when the tuner wants to know its quality, which says nothing of that.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.core.settings import Config
from autotune.space import following
from autotune.workloads import registry

if TYPE_CHECKING:  # whose checks ask here
    from autotune.space.space import Space


@dataclass(frozen=True)
class Counting:
    """How the records of a trial are counted, as its search space says it."""

    quality: str  # the key that only the record of an evaluation has
    minimize: bool  # lower qualities are better
    unit: str  # counted as samples
    counts_evaluations: bool  # they are part of the speed
    samples_per_evaluation: int | None  # in the user's own training; None: as in the trial


def counting(space: "Space", config: Config) -> Counting:
    """Returns how the records of a trial of `config` are counted."""
    goal = space.objective
    return Counting(
        quality=goal.quality,
        minimize=goal.minimize is not None,
        unit=space.unit,
        counts_evaluations=goal.counts_evaluations,
        samples_per_evaluation=samples(space, config),
    )


def setting(space: "Space") -> str | None:
    """The setting that says how often a training is evaluated, by the tuner's name; None where none does."""
    return space.evaluate_every or registry.cadence(registry.label(space.workload)).setting


def samples(space: "Space", config: Config) -> int | None:
    """Samples, or another unit of work, between two evaluations of a training with `config`.

    None where that is not known. `evaluate_every` counts steps of the baseline's effective batch: with
    another one it is rescaled. A workload's own setting is taken as it is, and counts no unit but samples.
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
    """The setting's name to its user, and its value in a training with `config`; None where there is none."""
    name, settings = setting(space), space.settings(config)
    said = {**settings, **following.steps(space, settings)}.get(name) if name else None
    return (space.naming.path(name), said) if name and isinstance(said, int | float) and said else None
