"""Settings that follow others: steps, further learning rates, the accumulation that keeps the batch. Pure."""

from typing import TYPE_CHECKING

from autotune.core.settings import (
    ACCUMULATION,
    LEARNING_RATE,
    LENGTH,
    MICRO_BATCH,
    Config,
    Setting,
    effective_batch,
)
from autotune.space.knobs import KeptBatch

if TYPE_CHECKING:  # which asks here
    from autotune.space.space import Space


def settings(space: "Space", given: Config) -> dict[str, Setting]:
    """The settings that are `given`, and what follows from them in place of what the baseline says."""
    known = {name: value for name, value in given.items() if name != LENGTH or name not in space.knobs}
    return {**known, **steps(space, given), **_other_rates(space, given)}


def steps(space: "Space", given: Config) -> dict[str, Setting]:
    """What counts steps, with as many samples as in the baseline."""
    ratio = space.effective_batch_size({}) / effective_batch(given)
    return {
        name: max(1, round(value * ratio))
        for name in (*space.counted_in_steps, *([space.evaluate_every] if space.evaluate_every else []))
        if isinstance(value := given.get(name), int) and value > 0 and ratio != 1
    }


def _other_rates(space: "Space", given: Config) -> dict[str, Setting]:
    """The learning rates that keep their ratio to the one that is `given`."""
    if not space.follow_learning_rate:
        return {}
    ours, theirs = (float(of.get(LEARNING_RATE) or 0) for of in (given, space.baseline))
    if ours == theirs:
        return {}
    rates = {name: float(given.get(name) or 0) * ours / theirs for name in space.follow_learning_rate}
    return {name: float(f"{rate:.4g}") for name, rate in rates.items()}


def resized(space: "Space", config: Config, micro_batch_size: int) -> dict[str, Setting]:
    """`config` with another micro-batch, and with what follows from it."""
    return space.config({**space.drawn(config), MICRO_BATCH: micro_batch_size})


def regrouped(space: "Space", config: Config, micro_batch_size: int) -> dict[str, Setting] | None:
    """`config` with another micro-batch, and as many of them as leave the effective batch what it is.

    None where they do not divide it, or the space has no such accumulation.
    """
    knob, whole = space.drawn_knobs.get(ACCUMULATION), space.effective_batch_size(config)
    one = space.effective_batch_size({**config, MICRO_BATCH: micro_batch_size, ACCUMULATION: 1})
    times, rest = divmod(whole, one)
    if knob is None or rest or not knob.drawn_from.contains(times):
        return None
    return space.config({**space.drawn(config), MICRO_BATCH: micro_batch_size, ACCUMULATION: times})


def keeps_batch(space: "Space") -> bool:
    """Whether the accumulation follows the micro-batch, so that the effective batch is the baseline's."""
    return isinstance(space.knobs.get(ACCUMULATION), KeptBatch)


def accumulation(space: "Space", config: Config) -> int:
    """How many micro-batches of `config` make the baseline's effective batch.

    Rounded down, to 1 at least, where they do not divide it: the configuration is then outside the limits.
    """
    at_once = space.effective_batch_size({**config, ACCUMULATION: 1})
    return max(1, space.effective_batch_size({}) // at_once)
