"""The trials of a session, and what was not started: each with what it took and what was saved. Pure."""

import re
from collections.abc import Callable, Sequence

from autotune import curves, objective, view
from autotune.report import estimates
from autotune.report.model import Row, Skipped
from autotune.settings import settings_key
from autotune.space import Space
from autotune.trial import PassedOver, Refused, Status, Trial

_FIGURE = re.compile(r"\d+([.,]\d+)*( [KMGT]iB)?")
_TAKEN_OUT = "…"


def rows(trials: Sequence[Trial], space: Space, winner: int | None) -> tuple[Row, ...]:
    """Every trial, in order; `winner` is the number of the one to run, None where that is not known."""
    least, front = least_quality(trials, space), {t.number for t in objective.pareto(trials)}
    return tuple(_row(t, space, winner, least, is_on_front=t.number in front) for t in trials)


def least_quality(trials: Sequence[Trial], space: Space) -> float | None:
    """The lowest quality that a winner may have, None while the baseline's is not known."""
    if space.objective.target is not None:
        return space.objective.target
    quality = objective.baseline_quality(trials)
    return None if quality is None else curves.least(space.objective.keep, quality)


def _row(trial: Trial, space: Space, winner: int | None, least: float | None, *, is_on_front: bool) -> Row:
    m, outcome = trial.measurement, trial.outcome
    return Row(
        number=trial.number,
        kind=_kind(trial, winner),
        repeats=trial.repeat.of if trial.repeat else None,
        config=trial.config,
        knobs=view.knobs(trial.config),
        status=outcome.status.value if outcome else "",
        failure=outcome.failure.value if outcome and outcome.failure else None,
        reason=outcome.reason if outcome else "",
        throughput=estimates.speed([m.throughput] if m.throughput else []),
        quality=trial.quality,
        keeps_quality=_keeps_quality(trial, space, least),
        on_front=is_on_front,
        peak_memory_bytes=m.peak_memory_bytes,
        memory_is_rising=m.memory_is_rising,
        memory_share=objective.memory_share(m),
        samples=m.samples,
        seconds=trial.seconds,
        saved_s=_saved_s(trial, space),
        shared=m.shared,
        disturbed=m.disturbed,
        throttled=m.throttled,
        curve=m.curve,
    )


def _kind(trial: Trial, winner: int | None) -> str:
    if trial.ablation_of is not None:
        return "ablation"
    if trial.race:
        return "race"
    if trial.repeat is not None:
        return "repeat"
    if trial.number == 0:
        return "baseline"
    return "winner" if trial.number == winner else "trial"


def _keeps_quality(trial: Trial, space: Space, least: float | None) -> bool | None:
    """Whether a whole trial has kept the quality; what part of one has shown says nothing yet."""
    if not trial.completed or trial.quality is None or least is None:
        return None
    if space.objective.target is not None:
        return objective.seconds_to(trial, space.objective.target) is not None
    return trial.quality >= least


def _saved_s(trial: Trial, space: Space) -> float:
    """What the rest of a trial that was stopped would have taken, at the pace that it had."""
    samples = trial.measurement.samples
    is_stopped = trial.outcome is not None and trial.outcome.status is Status.STOPPED
    if not is_stopped or not trial.searched or not samples:
        return 0.0
    return max(0.0, trial.seconds / samples * space.budget.samples_per_trial - trial.seconds)


def skipped(passed_over: Sequence[PassedOver], trials: Sequence[Trial]) -> tuple[Skipped, ...]:
    """The suggestions that were not started, by what their reasons say besides figures, most first.

    Each configuration that would not have fitted has saved what trials took that ran out of memory, each that
    could not win what those took that were stopped; the same suggested again saves nothing more. What is
    outside the limits was not wanted in the first place.
    """
    groups: dict[str, list[PassedOver]] = {}
    for one in passed_over:
        groups.setdefault(_FIGURE.sub(_TAKEN_OUT, one.reason), []).append(one)
    found = [
        Skipped(
            reason=words,
            count=len(group),
            saved_s=len({settings_key(one.config, ()) for one in group}) * _each_s(group[0].kind, trials),
            example=group[0].reason,
        )
        for words, group in groups.items()
    ]
    return tuple(sorted(found, key=lambda s: s.count, reverse=True))


def _each_s(kind: Refused, trials: Sequence[Trial]) -> float:
    """How long a trial would have taken, about, that was refused for that."""
    if kind is Refused.LIMITS:
        return 0.0
    if kind is Refused.MEMORY:
        return _mean_s(trials, lambda t: t.out_of_memory)
    return _mean_s(trials, lambda t: t.outcome is not None and t.outcome.status is Status.STOPPED)


def _mean_s(trials: Sequence[Trial], is_like: Callable[[Trial], bool]) -> float:
    """The mean duration of the trials like that, of all that have ended where there is none."""
    ended = [t for t in trials if t.outcome is not None and t.searched]
    alike = [t.seconds for t in ended if is_like(t)] or [t.seconds for t in ended]
    return objective.mean(alike) or 0.0
