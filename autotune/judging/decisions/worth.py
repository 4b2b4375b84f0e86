"""Decides whether a further trial may pay for itself. Pure."""

import itertools
import math

from autotune.judging.decisions.history import History

_LEAST_GAIN = math.log(1.1)  # assumed of the next improvement; or the mean of those so far, if that is more


def next_trial_pays(history: History) -> bool:
    """Returns True if the next trial is expected to save more training time than it costs.

    Future trainings take `budget.worth` seconds with the baseline's settings, and less with the best so far.
    The last of n independent trials is the best with probability 1 / n (Rényi, 1962); it is then expected to
    improve by the mean of earlier improvements. Always True without a `worth`.
    """
    worth_s = history.space.budget.worth
    if worth_s is None or not (factors := _best_factors(history)):
        return True
    gains = [math.log(after / before) for before, after in itertools.pairwise(factors) if after > before]
    gain = max(_LEAST_GAIN, math.fsum(gains) / len(gains)) if gains else _LEAST_GAIN
    saved_s = worth_s / factors[-1] * -math.expm1(-gain)
    return saved_s / (len(factors) + 1) > history.trial_s


def _best_factors(history: History) -> list[float]:
    """Returns how many times sooner the best training ends than the baseline's, after each searched trial."""
    if history.baseline is None:
        return []
    usual_s = history.training_s(history.baseline)
    seconds = {trial.number: history.training_s(trial) for trial in history.better}
    ended = [trial.number for trial in history.searched if trial.outcome is not None]
    factors = [usual_s / s if usual_s and (s := seconds.get(number)) else 1.0 for number in ended]
    return list(itertools.accumulate(factors, max))
