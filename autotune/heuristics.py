"""Heuristics of the field, for what to try next: a larger batch first, then a step from the best. Pure."""

import random
from collections.abc import Iterator, Sequence

from autotune.settings import MICRO_BATCH, Config, settings_key
from autotune.space import Space
from autotune.trial import Trial


def larger_batches(best: Trial, trials: Sequence[Trial], space: Space) -> Iterator[Config]:
    """`best` with a larger micro-batch: the largest, and below one that was no success, the middle first.

    A larger batch is faster almost everywhere until the device is full, and a trial that is fast early lets
    slower ones be stopped after seconds. Whether it fits, or is within the limits, screening says.
    """
    knob = space.knobs.get(MICRO_BATCH)
    if knob is None or knob.drawn_from.choice is None:
        return
    left_out = space.known.same_speed | {MICRO_BATCH}
    others = settings_key(best.config, left_out)
    tried = {
        int(t.config[MICRO_BATCH] or 0): t
        for t in trials
        if t.searched and settings_key(t.config, left_out) == others
    }
    size = int(best.config[MICRO_BATCH] or 0)
    above = sorted(s for s in knob.drawn_from.choice if isinstance(s, int) and s > size)
    failed = [s for s in above if s in tried]
    open_sizes = [s for s in above if s not in tried and (not failed or s < failed[0])]
    if failed and open_sizes:
        middle = open_sizes[len(open_sizes) // 2]
        open_sizes.sort(key=lambda s: abs(s - middle), reverse=True)
    for candidate in reversed(open_sizes):
        yield space.config({**space.drawn(best.config), MICRO_BATCH: candidate})


def steps_from(best: Trial, space: Space, rng: random.Random) -> list[Config]:
    """The configurations one step of one knob away from `best`, in random order."""
    found: list[Config] = list(space.neighbours(best.config))
    rng.shuffle(found)
    return found
