"""Finds what a workload seems not to use, by figures that are the same to the last bit. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from autotune.core.errors import printable
from autotune.core.measurement import Measurement
from autotune.core.settings import Key, settings_key
from autotune.core.trial import Trial
from autotune.judging.decisions import objective
from autotune.judging.decisions.history import History
from autotune.storage.records import is_score


def unused(history: History) -> list[str]:
    """Returns what the workload seems not to use: its seed, or a knob that changes no figure."""
    lines: dict[str, str] = {}
    for group in _reading_the_same(history.trials):
        for one, other, knob in _differing_in_one(group, history.space.known.same_figures):
            lines.setdefault(knob, _line(f"{one.number} and {other.number}", printable(knob)))
    return list(lines.values())


def _line(pair: str, knob: str) -> str:
    same = "exactly the same figures"
    if not knob:
        return f"Trials {pair} have different seeds and {same}: does the workload use its seed?"
    return f"{knob} changes nothing: trials {pair} differ only in it and have {same}."


def _reading_the_same(trials: Sequence[Trial]) -> Iterable[list[Trial]]:
    """Completed trials with the very same scores, or curve. A collapsed model proves nothing."""
    groups: dict[object, list[Trial]] = defaultdict(list)
    for trial in trials:
        found = _figures(trial.measurement)
        if trial.completed and found is not None and objective.no_quality(trial.measurement) is None:
            groups[found].append(trial)
    return groups.values()


def _differing_in_one(
    group: Sequence[Trial], left_out: Collection[str]
) -> Iterator[tuple[Trial, Trial, str]]:
    """Pairs that differ in one knob, with its name, or in the seed alone: one for a trial and knob."""
    first: dict[tuple[str, Key], Trial] = {}
    for trial in group:
        for knob in ("", *(name for name in trial.config if name not in left_out)):
            one = first.setdefault((knob, settings_key(trial.config, {knob})), trial)
            if _differ(one, trial, knob):
                yield one, trial, knob


def _differ(one: Trial, other: Trial, knob: str) -> bool:
    if knob:
        return repr(one.config[knob]) != repr(other.config[knob])
    return one.seed != other.seed


def _figures(measurement: Measurement) -> object:
    """Returns a trial's results, to compare; None for few numbers, which may be equal by chance."""
    scores = {k: v for k, v in measurement.scores.items() if is_score(k)}
    if len(set(scores.values())) > 1:
        return frozenset(scores.items())
    qualities = [point.quality for point in measurement.curve]
    return tuple(qualities) if len(set(qualities)) > 2 else None
