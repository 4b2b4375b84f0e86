"""The suggestions of a search that were not started, with what that has saved. Pure."""

from collections.abc import Callable, Sequence

from autotune.core.rejected_suggestion import RejectedFor, RejectedSuggestion
from autotune.core.settings import settings_key
from autotune.core.trial import Trial
from autotune.display import words
from autotune.judging.decisions import objective
from autotune.judging.decisions.history import History
from autotune.reports.model import Skipped


def skipped(passed_over: Sequence[RejectedSuggestion], history: History) -> tuple[Skipped, ...]:
    """Returns the suggestions that were not started, by what their reasons say besides figures, most first.

    Each configuration that would not have fitted has saved the time of a trial that ran out of memory, each
    that could not win the time of one that was stopped; the same suggested again saves nothing more. What is
    outside the limits was not wanted in the first place.
    """
    groups: dict[str, list[RejectedSuggestion]] = {}
    for one in passed_over:
        groups.setdefault(words.without_figures(one.reason), []).append(one)
    found = [
        Skipped(
            reason=what,
            count=len(group),
            saved_s=len({settings_key(one.config, ()) for one in group}) * _each_s(group[0].kind, history),
            example=group[0].reason,
        )
        for what, group in groups.items()
    ]
    return tuple(sorted(found, key=lambda s: s.count, reverse=True))


def _each_s(kind: RejectedFor, history: History) -> float:
    """Returns about how long a trial that was refused for that would have taken."""
    if kind is RejectedFor.LIMITS:
        return 0.0
    if kind is RejectedFor.MEMORY:
        return _mean_s(history, lambda t: t.out_of_memory)
    return _mean_s(history, lambda t: t.stopped)


def _mean_s(history: History, is_like: Callable[[Trial], bool]) -> float:
    """Returns the mean duration of such trials, or of all that have ended if there are none."""
    ended = [t for t in history.searched if t.outcome is not None]
    alike = [t.seconds for t in ended if is_like(t)] or [t.seconds for t in ended]
    return objective.mean(alike) or 0.0
