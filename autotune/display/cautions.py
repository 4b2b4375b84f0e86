"""Cautions about the figures of a search, in sentences. Pure."""

from collections.abc import Sequence

from autotune.core.trial import Trial
from autotune.display import growth, unused
from autotune.judging.decisions import confirm
from autotune.judging.decisions.history import History
from autotune.judging.measurement import trends


def cautions(history: History) -> list[str]:
    """Returns the reasons to trust the figures less."""
    lines, trials = [], history.trials
    if apart := history.speeds.disagreements():
        slower, faster, share = apart[0]
        lines.append(
            f"Figures vary on this machine: trials {slower.number} and {faster.number} ran the same settings "
            f"at speeds {share:.0%} apart (pairs more than 2% apart: {len(apart)})."
        )
    throttled = [t for t in trials if t.measurement.throttled]
    if throttled:
        lines.append(f"Slowed down by heat: trials {_listed(throttled)}.")
    lines += [_meanwhile(what, found) for what, found in _disturbed(trials).items()]
    lines += _leaks(history)
    lines += _breaking(history)
    return lines + unused.unused(history)


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
        f"{who} takes {growth.more(slope, unit)}: a leak, or a cache that fills. At this slope memory is "
        f"full after {growth.until(full, unit, training.samples_per_epoch)}."
    )


def company(rests_on: Sequence[Trial]) -> str:
    """`alone on the device`, or what others have used of it during the trials that a claim rests on."""
    used = [f"{_part(what, found)} of the {what}" for what, found in _disturbed(rests_on).items()]
    return f"while others used {' and '.join(used)}" if used else "alone on the device"


def _breaking(history: History) -> list[str]:
    """The trials that cannot win because of a constraint; and the baseline, where it breaks one itself."""
    found = {t.number: why for t in history.searched if (why := history.breaks(t))}
    lines = [f"The baseline itself violates a constraint: {found.pop(0)}."] if 0 in found else []
    if found:
        first, numbers = min(found), ", ".join(map(str, found))
        such = f"trial {first}: " if len(found) > 1 else ""
        trials = f"trial{'s' * (len(found) > 1)} {numbers}"
        lines.append(f"Constraints keep {trials} from winning ({such}{found[first]}).")
    return lines


def _meanwhile(what: str, trials: Sequence[Trial]) -> str:
    """`Others used this machine meanwhile: up to 38% of its CPUs during trials 0, 3, 7 (most in trial 3).`"""
    during = f"{_part(what, trials)} of its {what} during trial{'s' * (len(trials) > 1)} {_listed(trials)}"
    most = max(trials, key=lambda t: t.measurement.others[what]).number
    where = f" (most in trial {most})" if len(trials) > 1 else ""
    return f"Others used this machine meanwhile: {during}{where}."


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
