"""The trials of a session, what was not started, and the compared models: a row each. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from autotune.compare import results
from autotune.compare.results import Model, Runs
from autotune.core.passed_over import PassedOver, Refused
from autotune.core.settings import settings_key
from autotune.core.trial import Trial, TrialKind
from autotune.display import view
from autotune.judging import gains, objective, quality, reasons
from autotune.judging.history import History
from autotune.reports import words
from autotune.reports.model import Compared, Row, Skipped
from autotune.space.sections import Objective
from autotune.space.space import Space

_KINDS = {
    TrialKind.PILOT: "repeat",
    TrialKind.SEED: "repeat",
    TrialKind.RACE: "race",
    TrialKind.STEP: "ablation",
}


def rows(history: History, winner: int | None) -> tuple[Row, ...]:
    """Every trial, in order; `winner` is the number of the one to run, None where that is not known."""
    front = {t.number for t in history.front}
    return tuple(_row(t, history, winner, is_on_front=t.number in front) for t in history.trials)


def _row(trial: Trial, history: History, winner: int | None, *, is_on_front: bool) -> Row:
    m, outcome, shown = trial.measurement, trial.outcome, history.shown(trial)
    return Row(
        number=trial.number,
        kind=_kind(trial, winner),
        repeats=trial.repeat.of if trial.repeat else None,
        config=trial.config,
        knobs=view.knobs(trial.config),
        status=outcome.status.value if outcome else "",
        failure=outcome.failure.value if outcome and outcome.failure else None,
        stopped_for=outcome.stopped_for.value if outcome and outcome.stopped_for else None,
        reason=reasons.why(trial, history),
        throughput=shown.throughput,
        factor=gains.gain(trial, history),
        quality=shown.quality,
        keeps_quality=_keeps_quality(trial, shown.quality, history),
        on_front=is_on_front,
        peak_memory_bytes=shown.memory.peak_memory_bytes,
        memory_is_rising=shown.memory.memory_is_rising,
        memory_share=objective.memory_share(shown.memory),
        samples=m.samples,
        seconds=trial.seconds,
        saved_s=_saved_s(trial, history.space),
        shared=m.shared,
        disturbed=m.disturbed,
        throttled=m.throttled,
        curve=quality.shown_curve(m.curve, history.space.objective),
        breaks_constraint=history.breaks(trial) is not None,
    )


def _keeps_quality(trial: Trial, score: float | None, history: History) -> bool | None:
    """Whether the quality shown of a trial is enough; part of a trial says nothing."""
    least = history.least_quality
    if not trial.completed or least is None or score is None:
        return None
    if trial.repeat or history.space.objective.target is not None:
        return history.keeps_quality(trial)
    goal = history.space.objective
    return not trial.number or goal.takes_any_quality or goal.turned(score) >= least


def _kind(trial: Trial, winner: int | None) -> str:
    if trial.kind is not TrialKind.SEARCHED:
        return _KINDS[trial.kind]
    if trial.number == 0:
        return "baseline"
    return "winner" if trial.number == winner else "trial"


def _saved_s(trial: Trial, space: Space) -> float:
    """What the rest of a trial that was stopped would have taken, at the pace that it had."""
    samples = trial.measurement.samples
    if not trial.stopped or trial.kind is not TrialKind.SEARCHED or not samples:
        return 0.0
    return max(0.0, trial.seconds / samples * space.budget.samples_per_trial - trial.seconds)


def skipped(passed_over: Sequence[PassedOver], history: History) -> tuple[Skipped, ...]:
    """The suggestions that were not started, by what their reasons say besides figures, most first.

    Each configuration that would not have fitted has saved the time of a trial that ran out of memory, each
    that could not win the time of one that was stopped; the same suggested again saves nothing more. What is
    outside the limits was not wanted in the first place.
    """
    groups: dict[str, list[PassedOver]] = {}
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


def _each_s(kind: Refused, history: History) -> float:
    """About how long a trial that was refused for that would have taken."""
    if kind is Refused.LIMITS:
        return 0.0
    if kind is Refused.MEMORY:
        return _mean_s(history, lambda t: t.out_of_memory)
    return _mean_s(history, lambda t: t.stopped)


def _mean_s(history: History, is_like: Callable[[Trial], bool]) -> float:
    """The mean duration of such trials, of all that have ended where there are none."""
    ended = [t for t in history.searched if t.outcome is not None]
    alike = [t.seconds for t in ended if is_like(t)] or [t.seconds for t in ended]
    return objective.mean(alike) or 0.0


def compared(runs: Runs, goal: Objective) -> tuple[Compared, ...]:
    """Returns a row for every label that was compared."""
    return tuple(
        replace(_compared(model, runs[label], goal), beside_fp32=results.beside_fp32(model, runs))
        for label, model in results.first(runs).items()
    )


def _compared(model: Model, models: Sequence[Model], goal: Objective) -> Compared:
    """The results of the `models` of a label; what does not cover all of them is of this `model`."""
    done, training = [each for each in models if each.completed], model.training
    return Compared(
        label=model.label,
        config=model.config,
        status=model.outcome.status.value,
        reason=model.outcome.reason,
        trial=model.trial,
        samples=model.samples,
        throughput=results.throughput(done),
        training_peak_bytes=training.peak_memory_bytes,
        training_memory_is_rising=training.memory_is_rising,
        scores=results.mean_scores(done),
        reports_per_s=objective.mean([m.reports_per_s for m in done if m.reports_per_s is not None]),
        writing_peak_bytes=model.peak_memory_bytes,
        curve=quality.shown_curve(training.curve, goal),
        seeds=len(done),
        steps=model.steps,
        checkpoint_bytes=model.checkpoint_bytes,
        parameters=model.parameters,
    )
