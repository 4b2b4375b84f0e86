"""Heuristics of the field, for what to try next: a larger batch first, then a step from the best. Pure."""

import random
from collections.abc import Iterator, Sequence

from autotune.space import Space
from autotune.trial import SAME_SPEED, Config, Trial, settings_key

_BATCH = "micro_batch_size"


def larger_batches(best: Trial, trials: Sequence[Trial], space: Space) -> Iterator[Config]:
    """`best` with a larger micro-batch: the largest, and below one that was no success, the middle first.

    A larger batch is faster almost everywhere until the device is full, and a trial that is fast early lets
    slower ones be stopped after seconds. Whether it fits, or is within the limits, screening says.
    """
    knob = space.knobs.get(_BATCH)
    if knob is None or knob.drawn_from.choice is None:
        return
    others = settings_key(best.config, SAME_SPEED | {_BATCH})
    tried = {
        int(t.config[_BATCH] or 0): t
        for t in trials
        if t.searched and settings_key(t.config, SAME_SPEED | {_BATCH}) == others
    }
    size = int(best.config[_BATCH] or 0)
    above = sorted(s for s in knob.drawn_from.choice if isinstance(s, int) and s > size)
    failed = [s for s in above if s in tried]
    open_sizes = [s for s in above if s not in tried and (not failed or s < failed[0])]
    if failed and open_sizes:
        middle = open_sizes[len(open_sizes) // 2]
        open_sizes.sort(key=lambda s: abs(s - middle), reverse=True)
    for candidate in reversed(open_sizes):
        yield space.config({**space.drawn(best.config), _BATCH: candidate})


def steps_from(best: Trial, space: Space, rng: random.Random) -> list[Config]:
    """The configurations one step of one knob away from `best`, in random order."""
    found: list[Config] = list(space.neighbours(best.config))
    rng.shuffle(found)
    return found
