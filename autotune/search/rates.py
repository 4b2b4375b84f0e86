"""Learning rates that need no training, because one on the way to them was worse than one before it. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from autotune.core.settings import LEARNING_RATE, LENGTH, Config, Key, settings_key
from autotune.core.trial import StoppedFor, Trial
from autotune.judging.history import History

_WORSE = 1.15  # times the samples to the same quality: less may be chance


class _Point(NamedTuple):
    """A learning rate, and the samples to the quality that is to be kept."""

    rate: float
    needed: float
    trial: Trial


class RateBounds:
    """The learning rates that were too high, or too low.

    A training's quality has one maximum over its rate, so that nothing beyond a rate that did worse than
    another one is better than that. The best rate of a larger batch is at most larger in proportion (Goyal et
    al. 2017, arXiv 1706.02677), and no smaller.
    """

    def __init__(self, history: History) -> None:
        self._space = history.space
        groups: dict[Key, list[_Point]] = defaultdict(list)
        for trial in history.searched if history.needs.rate is not None else ():
            rate, needed = self._rate(trial.config), _needed(trial, history)
            if rate is not None and needed is not None:
                groups[settings_key(trial.config, {LEARNING_RATE, LENGTH})].append(
                    _Point(rate, needed, trial)
                )
        bounds = [_bounds(points) for points in groups.values()]
        self._too_high = [high for _, high in bounds if high]
        self._too_low = [low for low, _ in bounds if low]

    def why_out(self, config: Config) -> str | None:
        """Returns why the rate of `config` is not worth a training, None if it may be."""
        return next(self._reasons(config), None)

    def _reasons(self, config: Config) -> Iterator[str]:
        rate = self._rate(config)
        if rate is None:
            return
        batch = self._space.effective_batch_size(config)
        for bound, _, trial in self._too_high:
            if rate > bound * max(1.0, batch / self._space.effective_batch_size(trial.config)):
                yield f"learning rate {rate:.3g} is above {bound:.3g}, too high in trial {trial.number}"
        for bound, _, trial in self._too_low:
            if rate < bound * min(1.0, batch / self._space.effective_batch_size(trial.config)):
                yield f"learning rate {rate:.3g} is below {bound:.3g}, too low in trial {trial.number}"

    def _rate(self, config: Config) -> float | None:
        if LEARNING_RATE not in self._space.drawn_knobs:
            return None
        rate = self._space.settings(config).get(LEARNING_RATE)
        return float(rate) if isinstance(rate, int | float) and rate > 0 else None


def _needed(trial: Trial, history: History) -> float | None:
    """Returns the samples that the settings of a trial need; without end if its quality was out of reach."""
    if trial.outcome is not None and trial.outcome.stopped_for is StoppedFor.POOR:
        return math.inf
    return history.needs.samples(trial)


def _bounds(points: Sequence[_Point]) -> tuple[_Point | None, _Point | None]:
    """Returns the points next to the best one, on either side, that are clearly worse."""
    best = min(points, key=lambda point: point.needed)
    worse = [point for point in points if point.needed >= _WORSE * best.needed]
    below = max((p for p in worse if p.rate < best.rate), key=lambda p: p.rate, default=None)
    above = min((p for p in worse if p.rate > best.rate), key=lambda p: p.rate, default=None)
    return below, above
