"""Decides if a search has a winner; if not, explains why, and what to try. Pure functions of trials."""

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from autotune.core import units
from autotune.core.trial import Trial
from autotune.judging.accounts import costs, reasons
from autotune.judging.decisions import confirm
from autotune.judging.decisions.claims import Claim
from autotune.judging.decisions.history import History
from autotune.judging.decisions.objective import Reason
from autotune.storage.store import StoredSession, resume_command, search_command
from autotune.storage.study_file import SearchPlan

_TRIALS_MORE, _LEAST_S = 10, 300.0
_LEAST_SHOWN = 1.05  # a gain that one decimal shows


class WinnerState(StrEnum):
    """The state of the best configuration of a search."""

    CONFIRMED = "confirmed"  # its repeats hold
    UNCONFIRMED = "unconfirmed"  # seems better
    BASELINE = "baseline"  # nothing better
    NONE = "none"  # without a baseline there is nothing to compare with


def verdict(best: tuple[Trial, Claim | None] | None) -> WinnerState:
    """Returns the state of `best`, a result of `confirm.recommended`."""
    if best is None:
        return WinnerState.NONE
    trial, claim = best
    if trial.number == 0:
        return WinnerState.BASELINE
    return WinnerState.CONFIRMED if claim else WinnerState.UNCONFIRMED


def has_winner(history: History) -> bool:
    """Returns True if a configuration beats the baseline, confirmed if the search repeats its finalists."""
    state, space = verdict(confirm.recommended(history)), history.space
    if space.objective.select == "pareto" and state is not WinnerState.NONE:
        return any(t.number for t in history.front)  # a front of more than the baseline is enough
    return state is WinnerState.CONFIRMED or (state is WinnerState.UNCONFIRMED and not space.budget.repeats)


def is_unconfirmed(history: History) -> bool:
    """Returns True if a trial seems better than the baseline and still awaits its confirmation."""
    return verdict(confirm.recommended(history)) is WinnerState.UNCONFIRMED and not has_winner(history)


def possible_gain(history: History, command: str = "") -> str:
    """Returns `Possibly 1.9x faster, not confirmed. To confirm it: ...` and the `command`, if given."""
    best = confirm.recommended(history)
    gain = costs.gain(best[0], history) if best else None
    times = f" {gain.value:.1f}x" if gain and _LEAST_SHOWN <= gain.value < math.inf else ""
    return f"Possibly{times} faster, not confirmed" + (f". To confirm it: {command}" if command else "")


def no_winner_reason(history: History) -> str:
    """Returns `No winner: of 12 other trials 5 ran faster but lost quality, 4 ran out of memory, ...`."""
    if is_unconfirmed(history):
        return possible_gain(history)
    if (failed := history.failed_baseline) and failed.outcome:
        return f"No winner, because the baseline {failed.outcome}: {failed.outcome.reason}"
    if history.baseline is None:
        return "No winner: the baseline has not ended"
    return f"No winner: {reasons.summary(history)}"


@dataclass(frozen=True)
class Try:
    """A change that may bring a winner, and the command that continues the search after it."""

    what: str
    command: str = ""


def _fits_another(history: History, plan: SearchPlan) -> bool:
    return plan.left_s is None or plan.left_s > history.trial_s


def continue_command(history: History, plan: SearchPlan, session: Path) -> str:
    """Returns the command that resumes a search, with time for about ten more trials if one does not fit."""
    resume, each_s = resume_command(session), history.trial_s
    if _fits_another(history, plan):
        return resume
    enough_s = max(_LEAST_S, _TRIALS_MORE * each_s, confirm.most_s(history))
    return f"{resume} --time {units.round_up(enough_s) if each_s else '1h'}"


def what_to_try(
    history: History, plan: SearchPlan, session: Path, *, exhausted: bool, fallback_reason: str | None = None
) -> list[Try]:
    """Returns changes that may bring a winner, likeliest first; `exhausted`: everything was tried."""
    stored, resume = StoredSession(session), continue_command(history, plan, session)
    file, again = stored.space_file, search_command(session)
    if failed := history.failed_baseline:
        if failed.out_of_memory:
            fits = "such as one with a smaller batch, or a higher --memory-limit"
            return [Try(f"give a --baseline that fits, {fits}")]
        log = stored.trial_dir(failed.number).log
        return [Try(f"fix that, or give other settings as the --baseline; the trial's log is {log}")]
    more_time = Try("give it more time", resume)
    if history.baseline is None:
        return [more_time]
    if is_unconfirmed(history):
        return [Try("give it time for the confirmation", resume)]
    counts, space, goal = reasons.counts(history), history.space, history.space.objective
    repeats = f"set budget.repeats to {2 * space.budget.repeats} in {file}, because more"
    slack = f"lower objective.keep ({goal.keep})"
    if goal.within is not None:
        slack = f"raise objective.within ({goal.within:g})"
    target = f"{'raise' if goal.minimize else 'lower'} objective.target ({goal.target})"
    smaller = "smaller batches, or with activation checkpointing as a knob"
    remedies = {
        Reason.REFUTED: Try(f"{repeats} runs on an idle machine show smaller gains", resume),
        Reason.UNDECIDED: Try(f"{repeats} seeds show whether the quality is kept", resume),
        Reason.CHANCE: Try("run longer trials, which learn more", f"{again} --samples auto"),
        Reason.QUALITY: Try(f"{slack} in {file}", resume),
        Reason.BROKEN: Try(f"loosen objective.constraints in {file}", resume),
        Reason.MISSED: Try(f"{target} in {file}", resume),
        Reason.OOM: Try(f"start a new search with {smaller}, in {file}"),
    }
    tries = [remedy for reason, remedy in remedies.items() if counts[reason]]
    if fallback_reason:  # why qualities could not be compared, although they were to be
        tries.insert(0, Try(f"run longer trials, because {fallback_reason}", f"{again} --samples auto"))
    last = more_time if not _fits_another(history, plan) else Try("run more trials", f"{resume} --trials 20")
    if exhausted:
        last = Try(f"add knobs or values in {file}, because everything in it was tried", again)
    return [*tries, last]
