"""Cautions about the figures of a search, and what a training spends outside its steps. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from autotune.core.errors import printable
from autotune.core.measurement import Measurement
from autotune.core.settings import Key, settings_key
from autotune.core.trial import Trial
from autotune.display import words
from autotune.judging.accounts import overhead
from autotune.judging.decisions import confirm, objective
from autotune.judging.decisions.history import History
from autotune.judging.measurement import trends
from autotune.storage.records import is_score

_WORTH_TELLING = 0.01  # share of a training


def cautions(history: History) -> list[str]:
    """Returns the finalists that were not confirmed, and the reasons to trust the figures less."""
    lines = [f"Trial {t.number} was not confirmed: {reason}." for t, reason in confirm.refuted(history)]
    trials = history.trials
    if apart := history.speeds.disagreements():
        slower, faster, share = apart[0]
        lines.append(
            f"Speeds vary on this machine: trial {faster.number} ran {share:.0%} faster than trial "
            f"{slower.number} with the same settings."
        )
    throttled = [t for t in trials if t.measurement.throttled]
    if throttled:
        lines.append(f"Slowed down by heat: trials {_numbers(throttled)}.")
    for resource, disturbed in _disturbed(trials).items():
        during = f"trial {disturbed[0].number}"
        if len(disturbed) > 1:
            most = max(disturbed, key=lambda t: t.measurement.others[resource]).number
            during = f"trials {_numbers(disturbed)} (most in trial {most})"
        used = f"{_share(resource, disturbed)} of this machine's {resource}"
        lines.append(f"Other programs used {used} during {during}.")
    best = confirm.recommended(history)
    trusted = {t.number: t for t in (history.baseline, best[0] if best else None) if t is not None}
    leaks = (line for trial in trusted.values() for line in _leak(trial, history))
    return [*lines, *leaks, *_constraints(history), *unused_settings(history)]


def _leak(trial: Trial, history: History) -> Iterator[str]:
    memory, training, unit = history.memory(trial), history.space.training, history.space.unit
    full = trends.training_full_at(memory, training.samples)
    if memory.memory_slope is not None and full is not None:
        who = f"Trial {trial.number}" if trial.number else "The baseline"
        rate = words.growth(memory.memory_slope, unit)
        at = words.until_full(full, unit, training.samples_per_epoch)
        growing = f"{who}'s memory grows by {rate}, from a leak or a filling cache"
        yield f"{growing}. At this rate it is full after {at}."


def _constraints(history: History) -> Iterator[str]:
    broken = {t.number: why for t in history.searched if (why := history.broken_constraint(t))}
    if 0 in broken:
        yield f"The baseline itself violates a constraint: {broken.pop(0)}."
    if broken:
        first, why = next(iter(broken.items()))
        ruled_out = f"trial {first} ({why})"
        if len(broken) > 1:
            ruled_out = f"trials {', '.join(map(str, broken))} (trial {first}: {why})"
        yield f"Your constraints rule out {ruled_out}."


def contention(rests_on: Sequence[Trial]) -> str:
    """Returns `while other programs used 38% of the CPUs`: the most during trials that a claim rests on."""
    used = [f"{_share(resource, each)} of the {resource}" for resource, each in _disturbed(rests_on).items()]
    return f"while other programs used {' and '.join(used)}" if used else ""


def _disturbed(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    disturbed: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        for resource in trial.measurement.others:
            disturbed[resource].append(trial)
    return disturbed


def _share(resource: str, trials: Sequence[Trial]) -> str:
    most = max(t.measurement.others[resource] for t in trials)
    return f"{'up to ' if len(trials) > 1 else ''}{most:.0%}"


def _numbers(trials: Sequence[Trial]) -> str:
    return ", ".join(str(t.number) for t in trials)


def unused_settings(history: History) -> list[str]:
    """Returns the settings that the workload seems to ignore: its seed, or a knob that changes no figure."""
    alike: dict[object, list[Trial]] = defaultdict(list)
    for trial in history.trials:
        figures = _figures(trial.measurement)
        # A collapsed model proves nothing.
        if trial.completed and figures is not None and objective.no_quality(trial.measurement) is None:
            alike[figures].append(trial)
    lines, same_figures = dict[str, str](), history.space.known.same_figures
    for group in alike.values():
        first: dict[tuple[str, Key], Trial] = {}
        for trial in group:
            for knob in ["", *(name for name in trial.config if name not in same_figures)]:
                one = first.setdefault((knob, settings_key(trial.config, {knob})), trial)
                if text := _unused(one, trial, knob):
                    lines.setdefault(knob, text)
    return list(lines.values())


def _unused(one: Trial, other: Trial, knob: str) -> str:
    """Returns what equal figures of two trials show of `knob`, or of the seed if that is empty."""
    pair, same = f"{one.number} and {other.number}", "exactly the same figures"
    if not knob:
        text = f"Trials {pair} have different seeds and {same}: does the training use its seed?"
        return text if one.seed != other.seed else ""
    text = f"{printable(knob)} changes nothing: trials {pair} differ only in it and have {same}."
    return text if repr(one.config[knob]) != repr(other.config[knob]) else ""


def _figures(measurement: Measurement) -> object:
    """Returns a trial's results for comparison; None for few numbers, which may be equal by chance."""
    scores = {k: v for k, v in measurement.scores.items() if is_score(k)}
    if len(set(scores.values())) > 1:
        return frozenset(scores.items())
    qualities = [point.quality for point in measurement.curve]
    return tuple(qualities) if len(set(qualities)) > 2 else None


def spending(history: History) -> list[str]:
    """Returns a line on evaluations and one on pauses, if they take much of the recommended training."""
    best = confirm.recommended(history)
    ours = overhead.time_spent(best[0], history) if best else None
    if not best or not ours:
        return []
    trial, share, lines = best[0], ours.evaluations or 0.0, []
    whose = f"the training with trial {trial.number}'s settings" if trial.number else "the training"
    if share >= _WORTH_TELLING:
        theirs = overhead.time_spent(history.trial(0), history) if trial.number else None
        baseline = theirs.evaluations if theirs else None
        compared = "" if baseline is None else f", {baseline:.0%} of the baseline's"
        lines.append(f"Evaluation is about {share:.0%} of {whose}{compared}.")
    if ours.pauses >= _WORTH_TELLING:
        lines.append(f"Regular pauses, such as for checkpoints, are about {ours.pauses:.0%} of {whose}.")
    return lines
