"""Converts the planned length of a training between the tuner's samples and the user's settings. Pure."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from autotune.core.settings import LENGTH, Config, Setting, effective_batch
from autotune.space.knobs import PlannedLength
from autotune.space.space import Space

_ROUNDING = 0.02  # tolerance of a share, as steps and epochs are whole


def knob(space: Space) -> PlannedLength | None:
    declared = space.knobs.get(LENGTH)
    return declared if isinstance(declared, PlannedLength) else None


def training_length(space: Space) -> int | None:
    """Returns the samples of the user's own training, from its length settings; None if unknown."""
    plan = knob(space)
    value = space.baseline.get(plan.names[0]) if plan else None
    if plan is None or not isinstance(value, int | float) or value <= 0:
        return None
    unit_samples = _samples_each(space, plan, space.baseline)
    return None if unit_samples is None else max(1, round(value * unit_samples))


def _samples_each(space: Space, plan: PlannedLength, settings: Config) -> int | None:
    """Returns the samples in one unit of the length settings: a step, an epoch, or a sample."""
    if plan.steps:
        return effective_batch(settings)
    return space.training.samples_per_epoch if plan.epochs else 1


class OwnCadence(NamedTuple):
    """Steps at which a training evaluates by itself: at the `first`, then at intervals of `every`."""

    first: int
    every: int


def planned(space: Space, config: Config, samples: float, own: OwnCadence | None = None) -> int:
    """Returns the feasible length of `config` closest to `samples`, within the bounds of the knob's share.

    Steps and epochs are whole. Without `evaluate_every` a training ends a step after an evaluation of its
    `own` cadence, if known, since a script may evaluate before a step, and not after its last one.
    """
    plan, usual = knob(space), space.budget.samples_per_trial
    if plan is None:
        return usual
    low, high = (share * usual for share in plan.share)
    unit_samples = _samples_each(space, plan, space.settings(config)) or 1
    wanted = min(max(samples, low), high)
    if own is not None and plan.steps and space.evaluate_every is None:
        fewest = math.ceil((low * (1 - _ROUNDING) / unit_samples - own.first) / own.every)
        times = max(0, fewest, round((wanted / unit_samples - own.first) / own.every))
        return (own.first + times * own.every + 1) * unit_samples
    return max(1, round(wanted / unit_samples)) * unit_samples


def is_within(space: Space, config: Config) -> bool:
    """Returns True if the length of `config` may be planned."""
    plan, length = knob(space), config.get(LENGTH)
    if plan is None or not isinstance(length, int):
        return False
    slack = _samples_each(space, plan, space.settings(config)) or 1
    low, high = (share * space.budget.samples_per_trial for share in plan.share)
    return low * (1 - _ROUNDING) - slack <= length <= high * (1 + _ROUNDING) + slack


def settings(space: Space, config: Config, *, is_whole: bool = False) -> dict[str, Setting]:
    """Returns the user's length settings for a trial of `config`, or for the whole training it stands for."""
    plan, length, full = knob(space), config.get(LENGTH), training_length(space)
    unit_samples = _samples_each(space, plan, config) if plan else None
    if plan is None or full is None or unit_samples is None or not isinstance(length, int):
        return {}
    samples = length * full / space.budget.samples_per_trial if is_whole else length
    times = samples / unit_samples / float(space.baseline[plan.names[0]] or 1)
    values = {name: scaled(space.baseline.get(name), times) for name in plan.names}
    every = space.evaluate_every if is_whole and plan.steps else None  # or a shorter one ends unevaluated
    if every is not None and every not in space.knobs and isinstance(usual := space.baseline.get(every), int):
        values[every] = max(1, math.floor(usual * times))  # so that the last evaluation is not after the end
    return values


def scaled(value: Setting, times: float) -> Setting:
    """Returns a length setting multiplied by `times`; an int stays an int, and positive if it was."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    product = value * times
    return max(min(1, value), round(product)) if isinstance(value, int) else float(f"{product:.6g}")


def endless(space: Space, config: Config, times: int) -> Config:
    """Returns `config` with its length multiplied, so that it does not end before its race."""
    return {**config, LENGTH: space.samples(config) * times} if knob(space) else config


def completed(space: Space) -> Space:
    """Returns the space with trials as long as the user's training, or as `samples_per_trial` if given."""
    plan = knob(space)
    if plan is None:
        return space
    length = training_length(space) or space.budget.samples_per_trial
    if "samples_per_trial" not in space.budget.model_fields_set:
        space = space.revised(budget={"samples_per_trial": length})
    asked, training = space.budget.samples_per_trial, {"samples": space.training.samples or length}
    is_part = asked < (_samples_each(space, plan, space.baseline) or 1)
    samples = asked if is_part else planned(space, {}, asked)  # whole steps or epochs, or less than one
    return space.revised(budget={"samples_per_trial": samples}, training=training)


def miniature(space: Space) -> float | None:
    """Returns the share of the user's training that a trial has, None if trials are whole trainings."""
    plan, training = knob(space), space.training.samples
    share = space.budget.samples_per_trial / training if plan and training else 1.0
    return share if share < 1 - _ROUNDING else None


def mistakes(space: Space) -> Iterator[str]:
    plan = space.knobs.get(LENGTH)
    if plan is None:
        return
    if not isinstance(plan, PlannedLength):
        yield f"knob {LENGTH}: takes the settings that end a training, such as {{steps: [max_iters]}}"
        return
    if LENGTH in space.baseline:
        yield f"knob {LENGTH}: the baseline has a setting of that name, which the workload would not get"
    for name in plan.names:
        value = space.baseline.get(name)
        if name not in space.baseline:
            yield f"knob {LENGTH}: {space.naming.no_setting(space.naming.path(name), space.baseline)}"
        elif isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            yield f"knob {LENGTH}: {name} must be a number, got {value!r}"
        elif name in space.counted_in_steps or name in space.knobs:
            rule = "follows the length, so it can be neither another knob nor counted in steps"
            yield f"knob {LENGTH}: {name} {rule}"
    if not plan.epochs or space.training.samples_per_epoch:
        return
    yield f"knob {LENGTH}: needs training.samples_per_epoch, the samples of an epoch"
