"""Checks of a search space that compare several of its values. Pure."""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from autotune.core import units
from autotune.core.settings import (
    ACCUMULATION,
    COMMON,
    EFFECTIVE_BATCH,
    LARGEST_INT,
    LEARNING_RATE,
    MICRO_BATCH,
    PROCESSES,
    Setting,
)
from autotune.space.knobs import Distribution, KeptBatch, ScaledLearningRate
from autotune.space.space import Space

UNCOUNTED = "the evaluation interval counts only with objective.speed: wall"
_RATES = (1e-20, 1e20)  # representable by the sampler
_MOST_LISTED = 5  # wrong values in a message


def setting_mistakes(space: Space) -> Iterator[str]:
    yield from space.naming.mistakes(COMMON.by_name, space.baseline)
    yield from _step_count_mistakes(space)
    yield from _evaluation_mistakes(space)
    yield from _following_knob_mistakes(space)
    yield from _other_rate_mistakes(space)
    for name, (low, high) in space.known.whole.items():
        knob = space.knobs.get(name)
        values = [space.baseline[name]] if name in space.baseline else []
        values += (knob.choice or knob.bounds) if isinstance(knob, Distribution) else ()
        if wrong := [v for v in values if not _is_whole(v, low, high)]:
            yield f"{name}: must be whole numbers from {low} to {high}, got {units.quote(wrong[0])}"


def _following_knob_mistakes(space: Space) -> Iterator[str]:
    for name, knob in space.knobs.items():
        if isinstance(knob, ScaledLearningRate):
            rate = space.baseline.get(LEARNING_RATE)
            if name != LEARNING_RATE:
                yield f"{name}: scale: sqrt is only for {LEARNING_RATE}"
            elif MICRO_BATCH not in space.baseline:
                yield f"{name}: scale: sqrt needs {_lacking(MICRO_BATCH)}"
            elif not _RATES[0] <= (units.number(rate) or 0.0) <= _RATES[1]:
                shown = units.quote(rate)
                yield f"baseline {LEARNING_RATE}: must be a number above 0 to be scaled, got {shown}"
            if not knob.multiplier.contains(1.0):
                yield f"{name}.multiplier: must contain 1.0, the baseline's"
        elif isinstance(knob, KeptBatch):
            where = f"{space.naming.path(name)}: keep: effective_batch_size"
            if name != ACCUMULATION:
                yield f"{where} is only for {ACCUMULATION}; name yours in roles: {{{ACCUMULATION}: ...}}"
            elif MICRO_BATCH not in space.baseline:
                yield f"{where} needs {_lacking(MICRO_BATCH)}"
            elif not {MICRO_BATCH, PROCESSES} & space.knobs.keys():
                yield f"{where} needs a knob to follow, and {space.naming.path(MICRO_BATCH)} is none"


def _other_rate_mistakes(space: Space) -> Iterator[str]:
    for name in space.follow_learning_rate:
        path = space.naming.path(name)
        if LEARNING_RATE not in space.baseline:
            yield f"follow_learning_rate: needs {_lacking(LEARNING_RATE)}"
        elif name in space.knobs or name == LEARNING_RATE:
            yield f"follow_learning_rate: {path} has values of its own, and cannot follow as well"
        elif units.number(space.baseline.get(name)) is None:
            value = units.quote(space.baseline.get(name))
            yield f"follow_learning_rate: {path} must be a number of the baseline, got {value}"
    knob = space.knobs.get(LEARNING_RATE)
    choice = knob.choice if isinstance(knob, Distribution) else None
    rates = [space.baseline.get(LEARNING_RATE, 1), *(choice or ())]  # 1: that it is missing is said above
    if space.follow_learning_rate and (wrong := [rate for rate in rates if not units.number(rate)]):
        path, value = space.naming.path(LEARNING_RATE), units.quote(wrong[0])
        yield f"follow_learning_rate: {path} must be a number other than 0 to be followed, got {value}"


def _lacking(role: str) -> str:
    return f"the setting {role}: the baseline has none; name yours in roles: {{{role}: ...}}"


def _step_count_mistakes(space: Space) -> Iterator[str]:
    declared = {"counted_in_steps": space.counted_in_steps}
    declared |= {"evaluate_every": (space.evaluate_every,)} if space.evaluate_every else {}
    if space.evaluate_every and space.unit != "samples":
        rule = f"how many {space.unit} an optimizer step has is not known"
        yield f"evaluate_every: {rule}; leave it out, or leave out the unit"
    for where, names in declared.items():
        if names and MICRO_BATCH not in space.baseline:
            yield f"{where}: needs {_lacking(MICRO_BATCH)}"
        for name in names:
            path, value = space.naming.path(name), space.baseline.get(name)
            if name not in space.baseline:
                yield f"{where}: {space.naming.no_setting(path, space.baseline)}"
            elif name in space.knobs and where != "evaluate_every":
                yield f"{where}: {path} is a knob, and cannot follow the effective batch as well"
            elif not isinstance(value, int) or isinstance(value, bool):
                yield f"{where}: {path} must be a whole number of steps, got {units.quote(value)}"


def _evaluation_mistakes(space: Space) -> Iterator[str]:
    """Yields mistakes about evaluations: an unusable interval knob, or too few for `wall`."""
    name, counts_evaluations, fewest = space.evaluate_every or "", space.objective.counts_evaluations, 2
    knob, path = space.knobs.get(name), space.naming.path(name)
    if knob and not counts_evaluations:
        yield f"knob {path}: {UNCOUNTED}"
    if isinstance(knob, Distribution):
        values = list(knob.choice or knob.bounds)
        if not all(_is_whole(value, 1, LARGEST_INT) for value in values):
            yield f"knob {path}: must be whole numbers of steps, got {units.quote(values)}"
    if counts_evaluations and space.budget.evaluations_per_trial < fewest:
        given = space.budget.evaluations_per_trial
        yield f"objective.speed: wall needs budget.evaluations_per_trial of {fewest} or more, got {given}"


def _is_whole(value: Setting, low: int, high: int) -> bool:
    if value is None:
        return low == 0  # unset: the trainer's default
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def limit_mistakes(space: Space) -> list[str]:
    """Returns mistakes if no combination of knobs meets the batch limits, or keeps the baseline's batch."""
    if MICRO_BATCH not in space.baseline:
        return []
    low, high = space.limits.effective_batch_size
    where = f"limits.effective_batch_size [{low}, {high}]"
    if space.keeps_batch:
        size = space.effective_batch_size({})
        if not low <= size <= high:
            return [f"{where} leaves out the baseline's {size}, which must stay"]
        return _not_dividing(space, MICRO_BATCH, PROCESSES) or _not_dividing(space, PROCESSES, MICRO_BATCH)
    micro, accumulation, processes = (space.whole_values(name) for name in EFFECTIVE_BATCH)
    times = sorted({steps * count for steps in accumulation for count in processes})
    if any(bisect_left(micro, -(-low // count)) < bisect_right(micro, high // count) for count in times):
        return []
    ends = f"{micro[0] * times[0]} to {micro[-1] * times[-1]}"
    return [f"{where} allows none of the sizes that the knobs give, {ends}"]


def _not_dividing(space: Space, name: str, other: str) -> list[str]:
    """Returns a mistake if a value of `name` times any value of `other` never divides the kept batch."""
    size = space.effective_batch_size({})
    at_once = sorted({value for value in space.whole_values(other) if size % value == 0})
    wrong = (v for v in space.whole_values(name) if all(size % (v * count) for count in at_once))
    if not (first := list(itertools.islice(wrong, _MOST_LISTED))):
        return []
    allowed = " or ".join(str(size // count) for count in at_once[:_MOST_LISTED])
    rule = f"must be divisors of {allowed}, because {ACCUMULATION} keeps the effective batch of {size}"
    return [f"knob {space.naming.path(name)}: {rule}, got {', '.join(map(str, first))}"]
