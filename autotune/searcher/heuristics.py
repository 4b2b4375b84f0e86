"""Rules of thumb for the next configurations: free speed-ups, learning rates, larger batches. Pure."""

import itertools
import random
from collections.abc import Iterator, Sequence

from autotune.core.settings import BATCH, LEARNING_RATE, LENGTH, MICRO_BATCH, Config, settings_key
from autotune.core.trial import Trial
from autotune.judging.decisions import planning, replanning
from autotune.judging.decisions.history import History
from autotune.space import configurations

_BEST_BEFORE = 2  # configurations of an earlier session that are tried first
_RAISED = 2.0  # times the learning rate, as long as that helps


class Heuristics:
    """Proposes the best of an earlier search, then by rules and, every second turn, neighbours.

    `best_before`: best first.
    """

    def __init__(self, best_before: Sequence[Config], seed: int) -> None:
        self._best_before, self._rng = best_before, random.Random(seed)
        self._turn = 0

    def __call__(self, history: History) -> Iterator[Config]:
        """Yields the proposals of the next turn; none before a trial has completed."""
        self._turn += 1
        is_planned = planning.is_wanted(history.space)
        best = replanning.best(history) if is_planned else history.best
        if best is None:
            return
        before = (config for config in self._best_before if configurations.contains(history.space, config))
        yield from itertools.islice(before, _BEST_BEFORE)
        if is_planned:
            yield from equal_trainings(history)
            yield from raised_rate(best, history)
        yield from larger_batches(best, history)
        if self._turn % 2 == 0:
            neighbours = configurations.neighbours(history.space, best.config)
            self._rng.shuffle(neighbours)
            yield from neighbours


def equal_trainings(history: History) -> Iterator[Config]:
    """Yields the baseline with one setting changed that was not tried, and leaves the training the same."""
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
    """Yields `best` with twice its learning rate: guessed rates are rarely too high."""
    space = history.space
    knob = space.drawn_knobs.get(LEARNING_RATE)
    if knob is None or knob.drawn_from.choice is not None:
        return
    drawn = configurations.drawn_values(space, best.config)[LEARNING_RATE]
    raised = float(drawn or 0) * _RAISED
    if knob.drawn_from.contains(raised):
        yield configurations.changed(space, best.config, {LEARNING_RATE: raised})


def larger_batches(best: Trial, history: History) -> Iterator[Config]:
    """Yields `best` with larger micro-batches, the largest first; bisects below a size that was tried.

    A larger batch is almost always faster until the device is full, and a fast trial early on lets slower
    ones be stopped after seconds. Batches that replace accumulation come first: the training stays the same.
    """
    space, knob = history.space, history.space.drawn_knobs.get(MICRO_BATCH)
    if knob is None or knob.drawn_from.choice is None:
        return
    size = int(best.config[MICRO_BATCH] or 0)
    above = sorted(s for s in knob.drawn_from.choice if isinstance(s, int) and s > size)
    follows = space.knobs.keys() - space.drawn_knobs.keys()
    left_out = space.known.same_speed | follows | {LENGTH}
    tried = {t.key_without(left_out) for t in history.searched}
    for resized in (configurations.regrouped, configurations.resized):
        row = {s: config for s in above if (config := resized(space, best.config, s)) is not None}
        failed = [s for s, config in row.items() if settings_key(config, left_out) in tried]
        open_sizes = [s for s in row if s not in failed and (not failed or s < failed[0])]
        order = sorted(open_sizes, reverse=True)
        if failed and open_sizes:  # an upper bound is known: from the middle outwards
            middle = open_sizes[len(open_sizes) // 2]
            order.sort(key=lambda s: abs(s - middle))
        yield from (row[s] for s in order)
