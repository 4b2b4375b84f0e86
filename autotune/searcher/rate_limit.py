"""Learns which learning rates are too high to try. Pure."""

from autotune.core.settings import BATCH, LEARNING_RATE, LENGTH, Config, Key, settings_key
from autotune.core.trial import Failure, Trial
from autotune.judging.decisions.history import History
from autotune.searcher.sampler import quality_share
from autotune.space.knobs import ScaledLearningRate

_RUINED = 0.5  # of the baseline's improvement: a training that keeps less has not just lost a little
_TIMES_LOWER = 2**0.5  # than a rate that ruined a training: a closer one would hardly do better


class RateLimit:
    """The lowest learning rates that ruined a training, as multipliers of the rate scaled with the batch.

    A multiplier that is too high for one batch is too high for other batches, and for settings that only
    change the speed of the training.
    """

    def __init__(self, history: History) -> None:
        self._space = history.space
        self._alike = frozenset({LEARNING_RATE, LENGTH, *BATCH, *history.space.known.same_training})
        self._ruined: dict[Key, tuple[float, Trial]] = {}
        if not isinstance(history.space.knobs.get(LEARNING_RATE), ScaledLearningRate):
            return
        for trial in (t for t in history.searched if t.number and t.outcome and _is_ruined(t, history)):
            multiplier, key = self._multiplier(trial.config), trial.key_without(self._alike)
            if multiplier > 1 and (key not in self._ruined or multiplier < self._ruined[key][0]):
                self._ruined[key] = multiplier, trial

    def _multiplier(self, config: Config) -> float:
        return float(config.get(LEARNING_RATE) or 0) / self._space.learning_rate(config, 1.0)

    def explain_excess(self, config: Config) -> str | None:
        """Returns the reason if the learning rate of `config` is too high, else None."""
        lowest = self._ruined.get(settings_key(config, self._alike))
        if lowest is None or self._multiplier(config) * _TIMES_LOWER <= lowest[0]:
            return None
        return f"has a learning rate like that of trial {lowest[1].number}, which lost its quality"


def _is_ruined(trial: Trial, history: History) -> bool:
    return trial.cached(("ruined", history.context), lambda: _judge_ruined(trial, history))


def _judge_ruined(trial: Trial, history: History) -> bool:
    if trial.outcome is not None and trial.outcome.failure is Failure.DIVERGED:
        return True
    share = quality_share(trial, history)
    return share is not None and share < _RUINED
