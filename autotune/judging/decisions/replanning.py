"""Plans the length of new configurations, and which settings to train again at another length. Pure."""

import itertools

from autotune.core.settings import LENGTH, Config
from autotune.core.trial import Trial
from autotune.judging.decisions import planning
from autotune.judging.decisions.history import History
from autotune.judging.decisions.objective import Reason
from autotune.space import lengths
from autotune.space.lengths import OwnCadence

_PILOT = 0.5  # of the baseline's length: both runs together show what a longer training gains
_WORTH = 0.95  # of the best time so far: a smaller saving is not worth a training
_SAME = 0.03  # lengths that differ by less count as equal
_MOST_LENGTHS = 4  # of the same settings
_OPEN = {None, Reason.QUALITY, Reason.UNSURE}  # reasons that another length may cure


def pilot(history: History) -> Config | None:
    """Returns the baseline's settings at half its length; None if that has run, or cannot be planned."""
    space = history.space
    if not planning.is_wanted(space) or history.baseline is None or space.budget.trials < 2:
        return None
    config = space.baseline_config
    if any(trial.number for trial in history.trained_alike(config)):
        return None
    half = _with(history, config, _PILOT * space.budget.samples_per_trial)
    return half if space.samples(half) < space.samples(config) else None  # epochs are whole


def planned(config: Config, history: History, share: float) -> Config:
    """Returns `config` with a `share` of the length that the best settings need, at most the baseline's."""
    if not planning.is_wanted(history.space):
        return config
    leader, most = best(history), history.space.budget.samples_per_trial
    needed = history.needed_samples(leader) if leader else None
    return _with(history, config, share * min(needed or most, most))


def best(history: History) -> Trial | None:
    """Returns the trial whose settings finish first at the length that they need."""
    candidates = [t for t in history.searched if t.completed and history.rejection(t) in _OPEN]
    return max(candidates, key=history.equal_trainings_per_s, default=None)


def as_needed(trial: Trial, history: History) -> Config:
    """Returns a trial's settings at the length that they need, but the baseline's settings unchanged."""
    needed = history.needed_samples(trial)
    return _with(history, trial.config, needed) if needed else trial.config


def next_config(history: History) -> Config | None:
    """Returns the best settings at the length that they need; None if that has run, or is not worth it."""
    space = history.space
    leader = best(history) if planning.is_wanted(space) else None
    if leader is None or history.needs.rate is None:
        return None
    equals = history.trained_alike(leader.config)
    first = next((t for t in history.ranked if history.is_long_enough(t)), None)
    if not leader.number or first is None or len(equals) >= _MOST_LENGTHS:
        return None
    config = as_needed(leader, history)
    length = space.samples(config)
    if history.surely_per_s(leader) / length * _WORTH <= history.trainings_per_s(first):
        return None
    is_known = any(abs(space.samples(t.config) / length - 1) < _SAME for t in equals)
    return None if is_known else config


def _with(history: History, config: Config, samples: float) -> Config:
    """Returns `config` with a planned length; it ends with an evaluation if the baseline's are regular."""
    size, cadence = history.space.effective_batch_size({}), None
    steps = [round(point.samples / size) for point in history.baseline_curve]
    between = [after - before for before, after in itertools.pairwise(steps)]
    if between and max(between) - min(between) <= 1 and min(between) >= 1:
        cadence = OwnCadence(steps[-1] % between[-1] or between[-1], between[-1])
    return {**config, LENGTH: lengths.planned(history.space, config, samples, cadence)}
