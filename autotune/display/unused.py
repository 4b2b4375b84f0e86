"""What a workload seems not to use, judged by figures that are the same to the last bit. Pure."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from autotune.core.errors import printable
from autotune.core.trial import Measurement, Trial
from autotune.judging import confirm, objective
from autotune.judging.history import History
from autotune.storage.records import is_score


def unused(history: History) -> list[str]:
    """What the workload seems not to use: its seed, or a knob, where figures are the same to the last bit."""
    lines: dict[str, str] = {}
    for one, other in _read_the_same(history.trials):
        pair = f"{one.number} and {other.number}"
        differ = [name for name in one.config if repr(one.config[name]) != repr(other.config.get(name))]
        if not differ and confirm.seed_of(one) != confirm.seed_of(other):
            what = "have different seeds and exactly the same figures: does the workload use its seed?"
            lines.setdefault("", f"Trials {pair} {what}")
        if len(differ) == 1 and differ[0] not in history.space.known.same_figures:
            knob = printable(differ[0])
            line = (
                f"{knob} changes nothing: trials {pair} differ only in it and have exactly the same figures."
            )
            lines.setdefault(knob, line)
    return list(lines.values())


def _read_the_same(trials: Sequence[Trial]) -> Iterator[tuple[Trial, Trial]]:
    """Pairs of completed trials with the very same scores, or curve. A collapsed model proves nothing."""
    groups: dict[object, list[Trial]] = defaultdict(list)
    for trial in trials:
        found = _figures(trial.measurement)
        if trial.completed and found is not None and objective.no_quality(trial.measurement) is None:
            groups[found].append(trial)
    for group in groups.values():
        yield from itertools.combinations(group, 2)


def _figures(measurement: Measurement) -> object:
    """What a trial's evaluations found, to compare; None for one number, which may be equal by chance."""
    scores = {k: v for k, v in measurement.scores.items() if is_score(k)}
    if len(set(scores.values())) > 1:
        return frozenset(scores.items())
    qualities = [point.quality for point in measurement.curve]
    return tuple(qualities) if len(set(qualities)) > 1 else None
