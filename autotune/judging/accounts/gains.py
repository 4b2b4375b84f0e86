"""The gain of a configuration over the baseline: one figure for every place that shows it. Pure."""

from autotune.core.trial import Trial
from autotune.judging.decisions.claims import claim
from autotune.judging.decisions.history import History
from autotune.judging.measurement.estimates import Figure


def gain(trial: Trial, history: History) -> Figure | None:
    """Returns how many times less time a training takes than the baseline's, or with a target until there.

    A repeat has the gain of what it repeats. If there is a claim, it is the claim's. None if it is not known,
    as of a race.
    """
    speed, target = history.factor(trial), history.space.objective.target
    if speed is None:
        return None
    if target is None:
        return speed.scaled(history.shorter(trial))
    number = trial.original
    if not number:
        return Figure(1.0)
    found = claim(number, history) if history.relative.raced(trial) else None
    if found is not None and found.factor is not None:
        return found.factor
    ours, theirs = (history.to_target.samples(t) for t in (history.of(number), history.of(0)))
    return Figure(speed.value * theirs / ours) if ours and theirs else None
