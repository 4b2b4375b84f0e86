"""Explains for each trial why it has not won, as a reason and in words. Pure."""

from collections import Counter
from typing import assert_never

from autotune.core.trial import Failure, Status, StoppedFor, Trial, TrialKind
from autotune.judging.decisions import claims, confirm, objective
from autotune.judging.decisions.history import History
from autotune.judging.decisions.objective import Reason
from autotune.judging.decisions.quality import QualityAnswer
from autotune.judging.measurement import curves

_FAILURES = {Failure.OOM: Reason.OOM, Failure.DIVERGED: Reason.DIVERGED, Failure.TIMEOUT: Reason.SILENT}


def counts(history: History) -> Counter[Reason]:
    """Counts the trials that have not won, without the baseline, by reason."""
    reasons = {t.number: Reason.UNCONFIRMED for t in history.better}
    for trial, _ in confirm.refuted(history):
        is_open = claims.claim(trial.number, history).answer is QualityAnswer.UNDECIDED
        reasons[trial.number] = Reason.UNDECIDED if is_open else Reason.REFUTED
    others = [t for t in history.searched if t.number]
    return Counter(reasons.get(t.number) or _reason_inferior(t, history) for t in others)


def _reason_inferior(trial: Trial, history: History) -> Reason:
    """Returns the reason why a trial is no better than the baseline, by its own run."""
    outcome, goal, factor = trial.outcome, history.space.objective, history.factor(trial)
    is_faster = factor is not None and factor.value * history.length_ratio(trial) > 1
    poor = Reason.QUALITY if is_faster else Reason.SLOW_AND_POOR
    if outcome is None or outcome.status is Status.INTERRUPTED:
        return Reason.OPEN
    if outcome.status is Status.FAILED:
        return _FAILURES.get(outcome.failure or Failure.ERROR, Reason.FAILED)
    if outcome.status is Status.STOPPED:
        match outcome.stopped_for:
            case StoppedFor.LATE:
                return Reason.LATE
            case StoppedFor.POOR:
                return poor
            case StoppedFor.SLOW | StoppedFor.DOMINATED | None:
                return Reason.STOPPED if is_faster else Reason.SLOWER
            case another:
                assert_never(another)
    if rejection := history.rejection(trial):
        return poor if rejection is Reason.QUALITY else rejection
    if goal.target is not None:
        return Reason.REACHED
    if is_faster:
        return Reason.CLOSE
    return Reason.SLOWER if goal.takes_any_quality or goal.select == "same-training" else Reason.KEPT


def explain(trial: Trial, history: History) -> str:
    """Returns the fault of a completed trial in constraints, memory or quality; without one, why it ended."""
    ended = trial.outcome.reason if trial.outcome else ""
    if broken := history.broken_constraint(trial):
        return broken
    if not trial.completed or trial.kind is not TrialKind.SEARCHED:
        return ended
    space, goal = history.space, history.space.objective
    match history.rejection(trial):
        case Reason.MEMORY:
            return objective.over_memory(trial.measurement, space.limits.memory_fraction) or ended
        case Reason.CHANCE:
            return objective.no_quality(trial.measurement, goal) or ended
        case Reason.QUALITY if (least := history.least_quality) is not None:
            quality = goal.turned(curves.end_quality(trial.measurement) or 0.0)
            side = "below the required" if goal.minimize is None else "above the allowed"
            return f"its {goal.quality} {quality:.4f} is {side} {goal.turned(least):.4f}"
    return ended


def summary(history: History) -> str:
    """Formats all reasons: `of 12 other trials, 5 ran faster but lost quality, 4 ran out of memory`."""
    reasons = counts(history)
    if not reasons:
        return "nothing else was tried"
    parts = ", ".join(f"{n} {reason}" for reason, n in reasons.most_common())
    return f"of {reasons.total()} other trial{'s' * (reasons.total() > 1)}, {parts}"
