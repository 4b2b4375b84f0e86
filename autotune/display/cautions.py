"""Cautions about the figures of a search, and what a training spends outside of its steps. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from autotune.core.errors import printable
from autotune.core.measurement import Measurement
from autotune.core.settings import Key, settings_key
from autotune.core.trial import Trial
from autotune.display import words
from autotune.judging.accounts import overhead
from autotune.judging.accounts.overhead import TimeShares
from autotune.judging.decisions import confirm, objective
from autotune.judging.decisions.history import History
from autotune.judging.measurement import trends
from autotune.space import following
from autotune.storage.records import is_score

_WORTH_TELLING, _WORTH_CHANGING = 0.01, 0.05  # shares of a training


def cautions(history: History) -> list[str]:
    """Returns the reasons to trust the figures less."""
    lines, trials = [], history.trials
    if apart := history.speeds.disagreements():
        slower, faster, share = apart[0]
        lines.append(
            f"Speeds vary on this machine: trial {faster.number} ran {share:.0%} faster than trial "
            f"{slower.number} with the same settings."
        )
    throttled = [t for t in trials if t.measurement.throttled]
    if throttled:
        lines.append(f"Slowed down by heat: trials {_listed(throttled)}.")
    lines += [_meanwhile(what, found) for what, found in _disturbed(trials).items()]
    lines += _leaks(history)
    lines += _breaking(history)
    return lines + unused(history)


def _leaks(history: History) -> list[str]:
    """Says if a training with today's settings, or with the recommended ones, fills the memory."""
    found = confirm.recommended(history)
    trials = {t.number: t for t in (history.baseline, found[0] if found else None) if t is not None}
    return [line for t in trials.values() if (line := _leak(t, history))]


def _leak(trial: Trial, history: History) -> str | None:
    """`Trial 7 takes 64 MiB more for every 1000 samples ...: memory is full after 480000, in epoch 41.`"""
    shown, training = history.memory(trial), history.space.training
    slope, full = shown.memory_slope, trends.training_full_at(shown, training.samples)
    if slope is None or full is None:
        return None
    who, unit = "The baseline" if trial.number == 0 else f"Trial {trial.number}", history.space.unit
    return (
        f"{who} takes {words.growth(slope, unit)}: a leak, or a cache that fills. At this slope memory is "
        f"full after {words.until_full(full, unit, training.samples_per_epoch)}."
    )


def company(rests_on: Sequence[Trial]) -> str:
    """Returns what other programs used of the machine during the trials that a claim rests on."""
    used = [f"{_part(what, found)} of the {what}" for what, found in _disturbed(rests_on).items()]
    return f"while other programs used {' and '.join(used)}" if used else ""


def _breaking(history: History) -> list[str]:
    """The trials that cannot win because of a constraint; and the baseline, where it breaks one itself."""
    found = {t.number: why for t in history.searched if (why := history.breaks(t))}
    lines = [f"The baseline itself violates a constraint: {found.pop(0)}."] if 0 in found else []
    if found:
        first, numbers = min(found), ", ".join(map(str, found))
        such = f"trial {first}: " if len(found) > 1 else ""
        trials = f"trial{'s' * (len(found) > 1)} {numbers}"
        lines.append(f"Your constraints rule out {trials} ({such}{found[first]}).")
    return lines


def _meanwhile(what: str, trials: Sequence[Trial]) -> str:
    """`Other programs used up to 38% of this machine's CPUs during trials 0, 3, 7 (most in trial 3).`"""
    those = f"trial{'s' * (len(trials) > 1)} {_listed(trials)}"
    during = f"{_part(what, trials)} of this machine's {what} during {those}"
    most = max(trials, key=lambda t: t.measurement.others[what]).number
    where = f" (most in trial {most})" if len(trials) > 1 else ""
    return f"Other programs used {during}{where}."


def _disturbed(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """The trials during which others used the device, by what of it they used."""
    used = dict.fromkeys(what for t in trials for what in t.measurement.others)
    return {what: [t for t in trials if what in t.measurement.others] for what in used}


def _part(what: str, trials: Sequence[Trial]) -> str:
    """`38%`, or `up to 38%`: what others used."""
    most = max(t.measurement.others[what] for t in trials)
    return f"{'up to ' if len(trials) > 1 else ''}{most:.0%}"


def _listed(trials: Sequence[Trial]) -> str:
    return ", ".join(str(t.number) for t in trials)


def unused(history: History) -> list[str]:
    """Returns what the workload seems not to use: its seed, or a knob that changes no figure."""
    lines: dict[str, str] = {}
    for group in _reading_the_same(history.trials):
        for one, other, knob in _differing_in_one(group, history.space.known.same_figures):
            lines.setdefault(knob, _unused(f"{one.number} and {other.number}", printable(knob)))
    return list(lines.values())


def _unused(pair: str, knob: str) -> str:
    same = "exactly the same figures"
    if not knob:
        return f"Trials {pair} have different seeds and {same}: does the training use its seed?"
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


def spending(history: History) -> list[str]:
    """Returns how much of the recommended training goes to evaluations and pauses, a line each.

    Nothing where that is not known, or is little.
    """
    found = confirm.recommended(history)
    ours = overhead.time_spent(found[0], history) if found else None
    return list(_spent(found[0], ours, history)) if found and ours else []


def _spent(trial: Trial, ours: TimeShares, history: History) -> Iterator[str]:
    whose = f"the training with trial {trial.number}'s settings" if trial.number else "the training"
    if (share := ours.evaluations) is not None and share >= _WORTH_TELLING:
        more = f"{_beside(trial, history)}{_saving(share, trial, history)}"
        yield f"Evaluation is about {share:.0%} of {whose}{more}."
    if ours.pauses >= _WORTH_TELLING:
        yield f"Regular pauses, such as for checkpoints, are about {ours.pauses:.0%} of {whose}."


def _beside(trial: Trial, history: History) -> str:
    """`, 12% of the baseline's`, whose steps take longer."""
    theirs = overhead.time_spent(history.trial(0), history) if trial.number else None
    share = theirs.evaluations if theirs else None
    return "" if share is None else f", {share:.0%} of the baseline's"


def _saving(share: float, trial: Trial, history: History) -> str:
    """Says what half as many evaluations would save; nothing if that is little or searched."""
    space = history.space
    if share < _WORTH_CHANGING or space.interval_setting in space.knobs:
        return ""
    half, known = f"{share / 2:.0%}", following.evaluation_interval(space, trial.config)
    if known is None or (isinstance(known[1], float) and 2 * known[1] > 1):  # more than an epoch, or than all
        return f": half as many would save about {half}"
    name, value = known
    return f": {name} {2 * value} instead of {value} would save about {half}"
