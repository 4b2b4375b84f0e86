"""Heuristics of the field for what to try next: what is free, then rates, then larger batches. Pure."""

import random
from collections.abc import Iterator, Mapping, Sequence

from autotune.core.settings import BATCH, LEARNING_RATE, LENGTH, MICRO_BATCH, Config, settings_key
from autotune.core.trial import Trial
from autotune.judging.decisions import planning, replanning
from autotune.judging.decisions.history import History
from autotune.space import configurations
from autotune.space.space import Space

_BEST_BEFORE = 2  # configurations of an earlier session that are tried first
_RAISED = 2.0  # times the learning rate, as long as that helps


class Heuristics:
    """Proposes what to try before the sampler is asked, which has every other turn to itself.

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
        is_planned = planning.is_wanted(history.space)
        best = replanning.best(history) if is_planned else history.best
        if best is None:
            return
        yield from self._best_before
        if is_planned:
            yield from equal_trainings(history)
            yield from raised_rate(best, history)
        yield from larger_batches(best, history)
        if has_steps:
            yield from steps_from(best, history.space, self._rng)


def equal_trainings(history: History) -> Iterator[Config]:
    """Yields what differs from the baseline in one setting, which leaves the training the same.

    Nothing of a setting of which another value was tried.
    """
    space, baseline = history.space, history.space.baseline_config
    tried = {
        name
        for trial in history.searched
        for name, value in trial.config.items()
        if value != baseline.get(name)
    }
    drawn = configurations.drawn_values(space, baseline)
    for name, knob in space.drawn_knobs.items():
        if name in space.known.same_training - BATCH and name not in tried:
            for value in reversed(knob.drawn_from.neighbours(drawn[name])):
                yield configurations.changed(space, baseline, {name: value})


def raised_rate(best: Trial, history: History) -> Iterator[Config]:
    """Yields `best` with twice its learning rate: one that was guessed is rarely too high."""
    space = history.space
    knob = space.drawn_knobs.get(LEARNING_RATE)
    if knob is None or knob.drawn_from.choice is not None:
        return
    drawn = configurations.drawn_values(space, best.config)[LEARNING_RATE]
    raised = float(drawn or 0) * _RAISED
    if knob.drawn_from.contains(raised):
        yield configurations.changed(space, best.config, {LEARNING_RATE: raised})


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
    for resized in (configurations.regrouped, configurations.resized):
        row = {s: config for s in above if (config := resized(history.space, best.config, s)) is not None}
        yield from _largest_first(row, history)


def _largest_first(row: Mapping[int, Config], history: History) -> Iterator[Config]:
    """Yields what of a `row` of configurations by size was not tried, below the smallest that was."""
    space = history.space
    follows = space.knobs.keys() - space.drawn_knobs.keys()
    left_out = space.known.same_speed | follows | {LENGTH}
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
    found: list[Config] = list(configurations.neighbours(space, best.config))
    rng.shuffle(found)
    return found
