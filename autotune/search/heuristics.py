"""Heuristics of the field, for what to try next: a larger batch first, then a step from the best. Pure."""

import random
from collections.abc import Iterator, Mapping, Sequence

from autotune.core.settings import MICRO_BATCH, Config, settings_key
from autotune.core.trial import Trial
from autotune.judging.history import History
from autotune.space import following
from autotune.space.space import Space

_BEST_BEFORE = 2  # configurations of an earlier session that are tried first


class Heuristics:
    """What to try before the sampler is asked, which has every other turn to itself.

    `best_before` are configurations that another search has found, the best first.
    """

    def __init__(self, best_before: Sequence[Config], seed: int) -> None:
        self._best_before, self._rng = best_before[:_BEST_BEFORE], random.Random(seed)
        self._turn = 0

    def __call__(self, history: History) -> Iterator[Config]:
        """Those of the next turn; none before there is anything to start from."""
        self._turn += 1
        return self._of(history, has_steps=self._turn % 2 == 0)

    def _of(self, history: History, *, has_steps: bool) -> Iterator[Config]:
        if history.best is None:
            return
        yield from self._best_before
        yield from larger_batches(history.best, history)
        if has_steps:
            yield from steps_from(history.best, history.space, self._rng)


def larger_batches(best: Trial, history: History) -> Iterator[Config]:
    """`best` with a larger micro-batch: the largest, and below one that was no success, the middle first.

    A larger batch is faster almost everywhere until the device is full, and a trial that is fast early lets
    slower ones be stopped after seconds. First come those that take the place of accumulated ones: they train
    the same. Whether one fits, or is within the limits, screening says.
    """
    knob = history.space.drawn_knobs.get(MICRO_BATCH)
    if knob is None or knob.drawn_from.choice is None:
        return
    size = int(best.config[MICRO_BATCH] or 0)
    above = sorted(s for s in knob.drawn_from.choice if isinstance(s, int) and s > size)
    for resized in (following.regrouped, following.resized):
        row = {s: config for s in above if (config := resized(history.space, best.config, s)) is not None}
        yield from _largest_first(row, history)


def _largest_first(row: Mapping[int, Config], history: History) -> Iterator[Config]:
    """What of a `row` of configurations by size was not tried, below the smallest that was."""
    space = history.space
    follows = space.knobs.keys() - space.drawn_knobs.keys()
    left_out = space.known.same_speed | follows
    tried = {settings_key(t.config, left_out) for t in history.searched}
    failed = [s for s, config in row.items() if settings_key(config, left_out) in tried]
    open_sizes = [s for s in row if s not in failed and (not failed or s < failed[0])]
    if failed and open_sizes:
        middle = open_sizes[len(open_sizes) // 2]
        open_sizes.sort(key=lambda s: abs(s - middle), reverse=True)
    for size in reversed(open_sizes):
        yield row[size]


def steps_from(best: Trial, space: Space, rng: random.Random) -> list[Config]:
    """The configurations one step of one knob away from `best`, in random order."""
    found: list[Config] = list(space.neighbours(best.config))
    rng.shuffle(found)
    return found
