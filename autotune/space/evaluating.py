"""What the records of a trial are judged by. Pure."""

from dataclasses import dataclass

from autotune.core.settings import Config
from autotune.space.space import Space


@dataclass(frozen=True)
class Counting:
    """The search space's rules for reading the records of a trial."""

    quality: str  # the key that only the record of an evaluation has
    minimize: bool  # lower qualities are better
    unit: str  # counted as samples
    counts_evaluations: bool  # evaluations are part of the speed
    samples_per_evaluation: int | None  # in the user's own training; None: as in the trial


def counting(space: Space, config: Config) -> Counting:
    """Returns the rules for reading the records of a trial of `config`."""
    goal = space.objective
    return Counting(
        quality=goal.quality,
        minimize=goal.minimize is not None,
        unit=space.unit,
        counts_evaluations=goal.counts_evaluations,
        samples_per_evaluation=space.samples_per_evaluation(config),
    )
