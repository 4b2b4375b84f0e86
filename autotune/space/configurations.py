"""Completes, draws and checks configurations of a search space, and converts them for a training. Pure."""

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

from autotune.core.settings import (
    ACCUMULATION,
    LEARNING_RATE,
    LENGTH,
    MICRO_BATCH,
    Config,
    Setting,
    effective_batch,
)
from autotune.space import lengths
from autotune.space.knobs import Distribution, Drawn, ScaledLearningRate
from autotune.space.space import Space

_MOST_LISTED = 20_000
_DRAWS = 500


def configure(space: Space, drawn: Mapping[str, Setting]) -> dict[str, Setting]:
    """Returns the configuration for `drawn` values, including the knobs that follow others."""
    config = {n: drawn[n] for n, knob in space.knobs.items() if isinstance(knob, Distribution)}
    if space.keeps_batch:
        config[ACCUMULATION] = _kept_accumulation(space, config)
    for name, knob in space.knobs.items():
        if isinstance(knob, ScaledLearningRate):
            rate = space.learning_rate(config, float(drawn[name] or 0))
            config[name] = float(f"{rate:.4g}")  # rounded as it is shown
    if LENGTH in space.knobs:
        config[LENGTH] = lengths.planned(space, config, space.budget.samples_per_trial)
    return {name: config[name] for name in space.knobs}


def _kept_accumulation(space: Space, config: Config) -> int:
    """Returns the accumulation steps that give `config` the baseline's effective batch, rounded down."""
    at_once = space.effective_batch_size({**config, ACCUMULATION: 1})
    return max(1, space.effective_batch_size({}) // at_once)  # outside the limits, if it does not divide


def drawn_values(space: Space, config: Config) -> dict[str, Setting]:
    """Inverts `configure`; approximately, as scaled learning rates are rounded."""
    return {name: _drawn_value(space, config, name, knob) for name, knob in space.drawn_knobs.items()}


def changed(space: Space, config: Config, changes: Config) -> dict[str, Setting]:
    """Returns `config` with drawn values changed, and the settings that follow them updated."""
    return configure(space, {**drawn_values(space, config), **changes})


def _drawn_value(space: Space, config: Config, name: str, knob: Drawn) -> Setting:
    if isinstance(knob, Distribution):
        return config[name]
    multiplier = float(config[name] or 0) / space.learning_rate(config, 1.0)
    if knob.multiplier.choice:
        return min(knob.multiplier.choice, key=lambda value: abs(float(value or 0) - multiplier))
    low, high = knob.multiplier.bounds
    return min(max(multiplier, low), high)


def allowed(space: Space) -> list[dict[str, Setting]] | None:
    """Returns all configurations within the limits; None if the knobs have over 20,000 combinations."""
    choices = [knob.drawn_from.choice for knob in space.drawn_knobs.values()]
    finite = [choice for choice in choices if choice is not None]
    if len(finite) < len(choices) or math.prod(map(len, finite)) > _MOST_LISTED:
        return None
    drawn = (dict(zip(space.drawn_knobs, values, strict=True)) for values in itertools.product(*finite))
    return [config for values in drawn if space.violation(config := configure(space, values)) is None]


def neighbours(space: Space, config: Config) -> list[dict[str, Setting]]:
    """Returns the configurations that differ from `config` by one step of one knob."""
    drawn = drawn_values(space, config)
    return [
        changed(space, config, {name: value})
        for name, knob in space.drawn_knobs.items()
        for value in knob.drawn_from.neighbours(drawn[name])
    ]


def shuffled(space: Space, rng: random.Random) -> Iterator[dict[str, Setting]]:
    """Yields configurations in random order: all of them if the space is small, else 500 draws."""
    listed = allowed(space)
    if listed is not None:
        rng.shuffle(listed)
        yield from listed
        return
    for _ in range(_DRAWS):
        yield configure(space, {name: knob.drawn_from.draw(rng) for name, knob in space.drawn_knobs.items()})


def contains(space: Space, config: Config) -> bool:
    """Returns True if `config` has exactly the knobs, each with a valid value."""
    if config.keys() != space.knobs.keys():
        return False
    if space.keeps_batch and config[ACCUMULATION] != _kept_accumulation(space, config):
        return False
    if LENGTH in space.knobs and not lengths.is_within(space, config):
        return False
    drawn = drawn_values(space, config)
    return all(knob.drawn_from.contains(drawn[name]) for name, knob in space.drawn_knobs.items())


def resized(space: Space, config: Config, micro_batch_size: int) -> dict[str, Setting]:
    return changed(space, config, {MICRO_BATCH: micro_batch_size})


def regrouped(space: Space, config: Config, micro_batch_size: int) -> dict[str, Setting] | None:
    """Returns `config` with another micro-batch at the same effective batch; None if the space has none."""
    knob, effective = space.drawn_knobs.get(ACCUMULATION), space.effective_batch_size(config)
    at_once = space.effective_batch_size({**config, MICRO_BATCH: micro_batch_size, ACCUMULATION: 1})
    times, rest = divmod(effective, at_once)
    if knob is None or rest or not knob.drawn_from.contains(times):
        return None
    return changed(space, config, {MICRO_BATCH: micro_batch_size, ACCUMULATION: times})


def with_following(space: Space, given: Config) -> dict[str, Setting]:
    """Returns the `given` settings, with step counts and learning rates derived from them."""
    derived = {name: value for name, value in given.items() if name != LENGTH or name not in space.knobs}
    derived |= _steps(space, given)
    if space.follow_learning_rate:
        rate, usual = (float(config.get(LEARNING_RATE) or 0) for config in (given, space.baseline))
        for name in space.follow_learning_rate if rate != usual else ():
            derived[name] = float(f"{float(given.get(name) or 0) * rate / usual:.4g}")
    return derived


def _steps(space: Space, given: Config) -> dict[str, Setting]:
    """Returns step counts rescaled to span the same number of samples as in the baseline."""
    ratio = space.effective_batch_size({}) / effective_batch(given)
    return {
        name: max(1, round(value * ratio))
        for name in (*space.counted_in_steps, *([space.evaluate_every] if space.evaluate_every else []))
        if isinstance(value := given.get(name), int) and value > 0 and ratio != 1
    }


def for_workload(space: Space, settings: Config) -> dict[str, Any]:
    """Returns `settings` for the whole training, in the user's names, shape and words."""
    length = lengths.settings(space, settings, is_whole=True)
    return space.naming.as_given({**with_following(space, settings), **length})


def for_trial(
    space: Space, settings: Config, samples: int | None = None, evaluations: int | None = None
) -> dict[str, Any]:
    """Returns `settings` for a trial of `samples`, else the budget's, with evenly spaced `evaluations`."""
    given = {**with_following(space, settings), **lengths.settings(space, settings)}
    if space.evaluate_every is not None:
        given[space.evaluate_every] = trial_interval(space, settings, samples, evaluations)
    return space.naming.as_given(given)


def trial_interval(
    space: Space, settings: Config, samples: int | None = None, evaluations: int | None = None
) -> int:
    """Returns the steps between evaluations of a trial; the arguments are those of `for_trial`."""
    count = evaluations or space.budget.evaluations_per_trial
    steps = space.samples(settings, samples) / effective_batch(settings)
    # Rounded up, or the trial would run on from its last evaluation to the next. If it ends by itself, the
    # last one is a step before the end: a script may evaluate before a step, and not after its last one.
    ends_itself = lengths.knob(space) is not None
    return max(1, int((steps - 1) // count if ends_itself else math.ceil(steps / count)))
