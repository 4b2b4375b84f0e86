"""Whether a search has found a winner; where it has not, why, and what to try. Pure functions of trials."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from autotune.core.trial import Failure, Status, StoppedFor, Trial
from autotune.judging import confirm, objective
from autotune.judging.confirm import Claim
from autotune.judging.history import History
from autotune.judging.quality import Answer
from autotune.space.sections import Objective
from autotune.storage.store import Session, anew, going_on


class Verdict(StrEnum):
    """What is known of the best configuration of a search."""

    CONFIRMED = "confirmed"  # its repeats hold
    UNCONFIRMED = "unconfirmed"  # measured once
    BASELINE = "baseline"  # nothing better
    NONE = "none"  # without a baseline there is nothing to compare with


def verdict(best: tuple[Trial, Claim | None] | None) -> Verdict:
    """What is known of the `best`, as `confirm.recommended` has it."""
    if best is None:
        return Verdict.NONE
    trial, claim = best
    if trial.number == 0:
        return Verdict.BASELINE
    return Verdict.CONFIRMED if claim else Verdict.UNCONFIRMED


def has_winner(history: History) -> bool:
    """Whether a search found what it was for: a configuration that beats the baseline, by repeats where they
    were asked for; under `pareto` a front of more than the baseline.
    """
    found, space = verdict(confirm.recommended(history)), history.space
    if space.objective.select == "pareto" and found is not Verdict.NONE:
        return any(t.number for t in history.front)
    return found is Verdict.CONFIRMED or (found is Verdict.UNCONFIRMED and not space.budget.repeats)


class Fate(StrEnum):
    """What kept a trial from winning."""

    BROKEN = "broke a constraint"
    KEPT = "kept the quality and ran no faster"
    SLOWER = "ran no faster"
    CLOSE = "ran faster by too little to be sure"
    STOPPED = "stopped early for being slower than another"
    SLOW_AND_POOR = "ran no faster and lost the quality"
    QUALITY = "ran faster and lost the quality"
    CHANCE = "reached a quality no better than chance"
    ANOTHER = "trained something else"
    REACHED = "reached the target no sooner"
    MISSED = "did not reach the target"
    LATE = "stopped early, another having been at the target sooner"
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


def fates(history: History) -> Counter[Fate]:
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
    if stopped_for is StoppedFor.LATE:
        return Fate.LATE
    is_old = stopped_for is None
    if stopped_for is StoppedFor.POOR or (is_old and history.is_out_of_reach(trial)):
        return _without_quality(trial, history)
    return Fate.STOPPED if _is_faster(trial, history) else Fate.SLOWER


def _without_quality(trial: Trial, history: History) -> Fate:
    return Fate.QUALITY if _is_faster(trial, history) else Fate.SLOW_AND_POOR


def _is_faster(trial: Trial, history: History) -> bool:
    factor = history.factor(trial)
    return factor is not None and factor.value > 1


def _fate_of_completed(trial: Trial, history: History) -> Fate:
    goal, baseline = history.space.objective, history.baseline
    if baseline is None or history.baseline_quality is None or trial.quality is None:
        return Fate.UNMEASURED
    if objective.over_memory(trial.measurement, history.space.limits.memory_fraction):
        return Fate.MEMORY
    if history.breaks(trial):
        return Fate.BROKEN
    if goal.select == "same-training":
        if not objective.trains_alike(trial.config, baseline.config, history.space.known):
            return Fate.ANOTHER
    elif not goal.takes_any_quality and objective.no_quality(trial.measurement):
        return Fate.CHANCE
    elif not history.keeps_quality(trial):
        return _without_quality(trial, history) if goal.target is None else Fate.MISSED
    if history.why_not(trial) is not None:
        return Fate.UNMEASURED
    if goal.target is not None:
        return Fate.REACHED
    if _is_faster(trial, history):
        return Fate.CLOSE
    return Fate.KEPT if not goal.takes_any_quality and goal.select != "same-training" else Fate.SLOWER


def counted(history: History) -> str:
    """`of 12 other trials 5 ran faster and lost the quality, 4 ran out of memory, ...`."""
    found = fates(history)
    if not found:
        return "nothing else was tried"
    told = ", ".join(f"{n} {what}" for what, n in found.most_common())
    return f"of {found.total()} other trial{'s' * (found.total() > 1)}, {told}"


def why_none(history: History) -> str:
    """`No winner: of 12 other trials 5 ran faster and lost the quality, 4 ran out of memory, ...`."""
    if (failed := history.failed_baseline) and failed.outcome:
        return f"No winner: the baseline {failed.outcome}: {failed.outcome.reason}"
    if history.baseline is None:
        return "No winner: the baseline has not ended"
    return f"No winner: {counted(history)}"


@dataclass(frozen=True)
class Try:
    """Something that may bring a winner, and the command that goes on with it once that is done."""

    what: str
    command: str = ""


def what_to_try(
    history: History, session: Path, *, exhausted: bool, fell_back: str | None = None
) -> list[Try]:
    """What may bring a winner, the likeliest first; `exhausted`: every configuration was tried.

    `fell_back` says why qualities could not be compared, where that was asked for.
    """
    file, resume = Session(session).space_file, going_on(session)
    if failed := history.failed_baseline:
        return [_for_baseline(failed, session)]
    if history.baseline is None:
        return [Try("more time", f"{resume} --time 1h")]
    found, space, goal = fates(history), history.space, history.space.objective
    repeats = f"budget.repeats {2 * space.budget.repeats} in {file}"
    longer = [Try(f"longer trials: {fell_back}", f"{anew(session)} --samples auto")] if fell_back else []
    told = {
        Fate.UNCONFIRMED: Try("time to confirm what is faster", f"{resume} --time 1h"),
        Fate.REFUTED: Try(f"{repeats}: more repeats show smaller gains, on an idle machine", resume),
        Fate.UNDECIDED: Try(f"{repeats}: more seeds show whether the quality is kept", resume),
        Fate.CHANCE: Try("longer trials, which learn more", f"{anew(session)} --samples auto"),
        Fate.QUALITY: Try(f"{_more_slack(goal)} in {file}", resume),
        Fate.BROKEN: Try(f"looser objective.constraints in {file}", resume),
        Fate.MISSED: Try(
            f"an objective.target {'above' if goal.minimize else 'below'} {goal.target} in {file}", resume
        ),
        Fate.OOM: Try(f"a new search with smaller batches, or activation checkpointing as a knob, in {file}"),
    }
    tries = longer + [what for kind, what in told.items() if found[kind]]
    if exhausted:
        return [*tries, Try(f"more knobs or values in {file}: everything in it was tried", anew(session))]
    return [*tries, Try("more trials", f"{resume} --trials 20")]


def _more_slack(goal: Objective) -> str:
    """What to ask of the quality instead."""
    if goal.within is not None:
        return f"an objective.within above {goal.within:g}"
    return f"an objective.keep below {goal.keep:g}"


def _for_baseline(failed: Trial, session: Path) -> Try:
    """What to do about a baseline that has failed."""
    if failed.out_of_memory:
        return Try("a --baseline that fits, such as one with a smaller batch; or a higher --memory-limit")
    log = Session(session).trial_dir(failed.number).log
    return Try(f"fix that, or give other settings as the --baseline; the trial's log is {log}")
