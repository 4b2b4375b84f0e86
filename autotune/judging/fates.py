"""What became of each trial, in one word: why it has not won. Pure."""

from collections import Counter
from enum import StrEnum
from typing import assert_never

from autotune.core.trial import Failure, Status, StoppedFor, Trial, TrialKind
from autotune.judging import confirm, curves, objective
from autotune.judging.history import History
from autotune.judging.objective import Disqualified
from autotune.judging.quality import Answer


class Fate(StrEnum):
    """What kept a trial from winning."""

    BROKEN = "broke a constraint"
    KEPT = "kept the quality and ran no faster"
    SLOWER = "ran no faster"
    CLOSE = "ran faster by too little to be sure"
    STOPPED = "stopped early because another is faster"
    SLOW_AND_POOR = "ran no faster and lost the quality"
    QUALITY = "ran faster and lost the quality"
    CHANCE = "reached a quality no better than chance"
    ANOTHER = "trained something else"
    REACHED = "reached the target no sooner"
    ELSEWHERE = "ran on another device, or other code"
    MISSED = "did not reach the target"
    LATE = "stopped early because another reached the target sooner"
    MEMORY = "took more memory than is allowed"
    OOM = "ran out of memory"
    DIVERGED = "diverged"
    SILENT = "fell silent"
    FAILED = "failed"
    REFUTED = "did not hold when confirmed"
    UNDECIDED = "stayed undecided when confirmed"
    UNCONFIRMED = "seemed better and awaited confirmation"
    UNMEASURED = "ended too early to be measured"
    OPEN = "had not ended"


_FAILURES = {Failure.OOM: Fate.OOM, Failure.DIVERGED: Fate.DIVERGED, Failure.TIMEOUT: Fate.SILENT}
_DISQUALIFIED = {
    Disqualified.ELSEWHERE: Fate.ELSEWHERE,
    Disqualified.ANOTHER: Fate.ANOTHER,
    Disqualified.MEMORY: Fate.MEMORY,
    Disqualified.BROKEN: Fate.BROKEN,
    Disqualified.CHANCE: Fate.CHANCE,
    Disqualified.MISSED: Fate.MISSED,
}


def of(history: History) -> Counter[Fate]:
    """How many trials besides the baseline were kept from winning by what."""
    repeated = {t.number: Fate.UNCONFIRMED for t in history.better}
    repeated |= {t.number: _of_refuted(t, history) for t, _ in confirm.refuted(history)}
    others = [t for t in history.searched if t.number]
    return Counter(repeated.get(t.number) or _fate(t, history) for t in others)


def _of_refuted(trial: Trial, history: History) -> Fate:
    is_open = confirm.claim(trial, history).answer is Answer.UNDECIDED
    return Fate.UNDECIDED if is_open else Fate.REFUTED


def _fate(trial: Trial, history: History) -> Fate:
    """That of a trial which is no better than the baseline by its own run."""
    outcome = trial.outcome
    if outcome is None or outcome.status is Status.INTERRUPTED:
        return Fate.OPEN
    if outcome.status is Status.FAILED:
        return _FAILURES.get(outcome.failure or Failure.ERROR, Fate.FAILED)
    if outcome.status is Status.STOPPED:
        return _fate_of_stopped(trial, outcome.stopped_for, history)
    return _fate_of_completed(trial, history)


def _fate_of_stopped(trial: Trial, stopped_for: StoppedFor | None, history: History) -> Fate:
    """That of a trial which could no longer win; of an older session that does not say why, by its curve."""
    match stopped_for:
        case StoppedFor.LATE:
            return Fate.LATE
        case StoppedFor.POOR:
            return _without_quality(trial, history)
        case StoppedFor.SLOW | StoppedFor.DOMINATED:
            return _beaten(trial, history)
        case None if history.is_out_of_reach(trial):
            return _without_quality(trial, history)
        case None:
            return _beaten(trial, history)
    assert_never(stopped_for)


def _beaten(trial: Trial, history: History) -> Fate:
    return Fate.STOPPED if _is_faster(trial, history) else Fate.SLOWER


def _without_quality(trial: Trial, history: History) -> Fate:
    return Fate.QUALITY if _is_faster(trial, history) else Fate.SLOW_AND_POOR


def _is_faster(trial: Trial, history: History) -> bool:
    factor = history.factor(trial)
    return factor is not None and factor.value > 1


def _fate_of_completed(trial: Trial, history: History) -> Fate:
    goal, why = history.space.objective, history.disqualified(trial)
    if why is Disqualified.QUALITY:
        return _without_quality(trial, history)
    if why is not None:
        return _DISQUALIFIED.get(why, Fate.UNMEASURED)
    if goal.target is not None:
        return Fate.REACHED
    if _is_faster(trial, history):
        return Fate.CLOSE
    return Fate.KEPT if not goal.takes_any_quality and goal.select != "same-training" else Fate.SLOWER


def reason(trial: Trial, history: History) -> str:
    """Why a trial ended as it did; of one that completed, what keeps it from being recommended."""
    ended = trial.outcome.reason if trial.outcome else ""
    return lacking(trial, history) or ended


def lacking(trial: Trial, history: History) -> str | None:
    """Which constraint a completed trial breaks, or how its memory or quality disqualifies it, in figures."""
    if broken := history.breaks(trial):
        return broken
    if not trial.completed or trial.kind is not TrialKind.SEARCHED:
        return None
    space, goal = history.space, history.space.objective
    match history.disqualified(trial):
        case Disqualified.MEMORY:
            return objective.over_memory(trial.measurement, space.limits.memory_fraction)
        case Disqualified.CHANCE:
            return objective.no_quality(trial.measurement, goal)
        case Disqualified.QUALITY if (least := history.least_quality) is not None:
            found = goal.turned(curves.ended_with(trial.measurement) or 0.0)
            side = "below" if goal.minimize is None else "above"
            return f"its quality {found:.4f} is {side} {goal.turned(least):.4f}, which is to be kept"
        case _:
            return None


def counted(history: History) -> str:
    """`of 12 other trials 5 ran faster and lost the quality, 4 ran out of memory, ...`."""
    found = of(history)
    if not found:
        return "nothing else was tried"
    told = ", ".join(f"{n} {what}" for what, n in found.most_common())
    return f"of {found.total()} other trial{'s' * (found.total() > 1)}, {told}"
