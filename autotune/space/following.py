"""Settings derived from others: step counts, further learning rates, batch-keeping accumulation. Pure."""

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

if TYPE_CHECKING:  # imports this module
    from autotune.space.space import Space


def settings(space: "Space", given: Config) -> dict[str, Setting]:
    """Returns the `given` settings, with step counts and learning rates derived from them."""
    known = {name: value for name, value in given.items() if name != LENGTH or name not in space.knobs}
    return {**known, **steps(space, given), **_other_rates(space, given)}


def steps(space: "Space", given: Config) -> dict[str, Setting]:
    """Returns rescaled step counts, which span as many samples as in the baseline."""
    ratio = space.effective_batch_size({}) / effective_batch(given)
    return {
        name: max(1, round(value * ratio))
        for name in (*space.counted_in_steps, *([space.evaluate_every] if space.evaluate_every else []))
        if isinstance(value := given.get(name), int) and value > 0 and ratio != 1
    }


def _other_rates(space: "Space", given: Config) -> dict[str, Setting]:
    """Returns further learning rates, scaled by the ratio of the given learning rate to the baseline's."""
    if not space.follow_learning_rate:
        return {}
    ours, theirs = (float(each.get(LEARNING_RATE) or 0) for each in (given, space.baseline))
    if ours == theirs:
        return {}
    rates = {name: float(given.get(name) or 0) * ours / theirs for name in space.follow_learning_rate}
    return {name: float(f"{rate:.4g}") for name, rate in rates.items()}


def resized(space: "Space", config: Config, micro_batch_size: int) -> dict[str, Setting]:
    """Returns `config` with another micro-batch, and with the settings that follow it."""
    return space.config({**space.drawn(config), MICRO_BATCH: micro_batch_size})


def regrouped(space: "Space", config: Config, micro_batch_size: int) -> dict[str, Setting] | None:
    """Returns `config` with another micro-batch at the same effective batch.

    None if it does not divide that, or the space does not contain the accumulation.
    """
    knob, whole = space.drawn_knobs.get(ACCUMULATION), space.effective_batch_size(config)
    one = space.effective_batch_size({**config, MICRO_BATCH: micro_batch_size, ACCUMULATION: 1})
    times, rest = divmod(whole, one)
    if knob is None or rest or not knob.drawn_from.contains(times):
        return None
    return space.config({**space.drawn(config), MICRO_BATCH: micro_batch_size, ACCUMULATION: times})


def keeps_batch(space: "Space") -> bool:
    """Returns True if the accumulation follows the micro-batch to keep the baseline's effective batch."""
    return isinstance(space.knobs.get(ACCUMULATION), KeptBatch)


def accumulation(space: "Space", config: Config) -> int:
    """Returns the accumulation steps that give `config` the baseline's effective batch.

    Rounds down, to at least 1, if it is no multiple: the configuration is then outside the limits.
    """
    at_once = space.effective_batch_size({**config, ACCUMULATION: 1})
    return max(1, space.effective_batch_size({}) // at_once)
