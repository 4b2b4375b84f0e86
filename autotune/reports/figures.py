"""Computes the figures of a session's report from its contents, which `read` has read. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autotune.compare import verdict
from autotune.compare.results import ComparisonResults
from autotune.core.rejected_suggestion import RejectedFor, RejectedSuggestion
from autotune.core.settings import MICRO_BATCH, PRECISION, SEED, Config, settings_key
from autotune.core.trial import Trial
from autotune.display import advice, rows, words
from autotune.display.snapshot import ENDED, INTERRUPTED, RUNNING
from autotune.judging.accounts import memory_forecast
from autotune.judging.accounts.costs import Prices
from autotune.judging.accounts.memory_forecast import MemoryForecast
from autotune.judging.decisions import ablation, confirm, objective, quality
from autotune.judging.decisions.history import History
from autotune.memory.feasibility import MemoryModel
from autotune.reports import comparison
from autotune.reports.model import Predicted, SessionReport, Skipped
from autotune.reports.recommendation import answer
from autotune.space import configurations
from autotune.space.space import Space
from autotune.storage.store import Options
from autotune.storage.study_file import SearchPlan
from autotune.workloads.base import OwnSection, Workload


@dataclass(frozen=True)
class SessionFacts:
    """The contents of a session."""

    shown: Path  # its directory as the user would write it
    state: str
    history: History
    workload: Workload
    options: Options
    provenance: Mapping[str, Any]
    plan: SearchPlan
    passed_over: Sequence[RejectedSuggestion] = ()
    compared: ComparisonResults = field(default_factory=ComparisonResults)
    own: OwnSection | None = None
    prices: Prices | None = None


def report(known: SessionFacts) -> SessionReport:
    """Returns the report of a session."""
    history, space = known.history, known.history.space
    result = answer(
        history,
        known.workload,
        known.shown,
        go_on=_resumed(known),
        training_samples=space.training.samples or known.provenance.get("training_samples"),
        prices=known.prices,
    )
    limit, goal, compared = _memory_limit_bytes(known), space.objective, known.compared
    return SessionReport(
        session=str(known.shown),
        created=str(known.provenance.get("created", "")),
        state=known.state,
        quality=goal.quality,
        keep=goal.keep,
        select=goal.select,
        target=goal.target,
        memory_fraction=space.limits.memory_fraction,
        memory_limit_bytes=limit,
        samples_per_trial=space.budget.samples_per_trial,
        planned=known.plan.trials,
        seconds=known.plan.spent_s or sum(t.seconds for t in history.trials),
        answer=result,
        least_quality=_least_quality(history),
        trials=rows.rows(history, result.best.trial if result.best and not result.is_open else None),
        predicted=predicted(result.best.config, history, limit) if result.best else (),
        ablation=tuple(ablation.steps(history)),
        which_precision=verdict.verdict(compared.models, compared.goal, verdict.search_noise(history)),
        compared=comparison.compared(compared.models, goal),
        own=known.own,
        skipped=skipped(known.passed_over, history),
        provenance=_provenance(known),
        minimize=goal.minimize is not None,
        within=goal.within,
        unit=space.unit,
        speed=goal.speed,
        by_precision=PRECISION in space.baseline,
        writes_reports=known.workload.program is not None,
        constraints=goal.constraints,
        elsewhere=_elsewhere(history),
        going_on=_going_on(known),
    )


def _elsewhere(history: History) -> MemoryForecast | None:
    """Returns what fits on other GPUs; None if nothing is recommended, or no GPU was used."""
    recommended = confirm.recommended(history)
    if recommended is None or MICRO_BATCH not in history.space.drawn_knobs:
        return None
    forecast = memory_forecast.forecast(recommended[0], history)
    return forecast if forecast.is_of_gpu else None


def _least_quality(history: History) -> float | None:
    """Returns the worst quality that a winner may have; None if any will do, or it is unknown."""
    goal = history.space.objective
    if goal.takes_any_quality and goal.target is None:
        return None
    return quality.in_users_sign(history.least_quality, goal)


def _resumed(known: SessionFacts) -> str:
    """Returns the command that continues a search that was interrupted or could not confirm its best."""
    is_unfinished = known.state == INTERRUPTED or (
        known.state == ENDED and advice.is_unconfirmed(known.history)
    )
    return advice.go_on(known.history, known.plan, known.shown) if is_unfinished else ""


def _going_on(known: SessionFacts) -> str:
    """Returns the command that runs more trials; empty if the search is running, or none can be run."""
    if known.state == RUNNING or known.history.failed_baseline:
        return ""
    untried = known.plan.trials - len(known.history.searched)
    more = " --trials 20" if known.state == ENDED and (known.plan.left_s != 0 or untried <= 0) else ""
    return f"{advice.go_on(known.history, known.plan, known.shown)}{more}"


def _memory_limit_bytes(known: SessionFacts) -> int | None:
    """Returns the lowest memory limit of any trial, which is what the memory model uses."""
    shown = [t.measurement for t in known.history.trials]
    limits = [m.memory_limit_bytes for m in shown if m.memory_limit_bytes]
    return min(limits, default=known.options.memory_limit_bytes)


def _provenance(known: SessionFacts) -> dict[str, Any]:
    """Returns how the session was started, and how its trials were measured."""
    measured = [t.measurement for t in known.history.trials if t.measurement.throughput]
    shared = sum(m.shared for m in measured)
    return {
        **{name: fact for name, fact in known.provenance.items() if name != "space"},
        "seeds": sorted({_seed(t, known) for t in known.history.trials}),
        "measured_alone": len(measured) - shared,
        "measured_beside_others": shared,
        "options": asdict(known.options),
    }


def _seed(trial: Trial, known: SessionFacts) -> int:
    """Returns the seed of a trial's random generators."""
    settings = known.workload.with_seed(known.history.space.settings(trial.config), trial.seed)
    return int(settings.get(SEED) or 0)


def predicted(config: Config, history: History, memory_limit_bytes: int | None) -> tuple[Predicted, ...]:
    """Returns predicted peaks for every precision and micro-batch, other settings as in `config`."""
    space, fraction = history.space, history.space.limits.memory_fraction
    model = MemoryModel(history.trials, fraction=fraction, limit_bytes=memory_limit_bytes, known=space.known)
    knob = space.drawn_knobs.get(PRECISION)
    precisions = (knob.drawn_from.choice if knob else None) or ()
    configs: list[Config] = [{**config, PRECISION: precision} for precision in precisions] or [config]
    peaks = [_predicted(model, chosen, space) for chosen in configs]
    return tuple(p for p in peaks if p.micro_batch_size)


def _predicted(model: MemoryModel, config: Config, space: Space) -> Predicted:
    sizes = space.micro_batch_sizes
    predictions = [(size, model.predict(configurations.resized(space, config, size))) for size in sizes]
    known = [(size, peak) for size, peak in predictions if peak is not None]
    return Predicted(
        precision=str(config.get(PRECISION, "")),
        micro_batch_size=tuple(size for size, _ in known),
        peak_bytes=tuple(peak.expected_bytes for _, peak in known),
        low_bytes=tuple(peak.low_bytes for _, peak in known),
        high_bytes=tuple(peak.high_bytes for _, peak in known),
    )


def skipped(passed_over: Sequence[RejectedSuggestion], history: History) -> tuple[Skipped, ...]:
    """Returns the rejected suggestions by reason, most frequent first.

    A configuration that would not fit saves the time of a trial that ran out of memory, one that cannot win
    that of a stopped trial. Repeated suggestions, and those outside the limits, save nothing.
    """
    groups: dict[str, list[RejectedSuggestion]] = {}
    for one in passed_over:
        groups.setdefault(words.without_figures(one.reason), []).append(one)
    reasons = [
        Skipped(
            reason=what,
            count=len(group),
            saved_s=len({settings_key(one.config, ()) for one in group}) * _each_s(group[0].kind, history),
            example=group[0].reason,
        )
        for what, group in groups.items()
    ]
    return tuple(sorted(reasons, key=lambda s: s.count, reverse=True))


def _each_s(kind: RejectedFor, history: History) -> float:
    """Returns the estimated seconds of a trial that was rejected for this reason."""
    if kind is RejectedFor.LIMITS:
        return 0.0
    if kind is RejectedFor.MEMORY:
        return _mean_s(history, lambda t: t.out_of_memory)
    return _mean_s(history, lambda t: t.stopped)


def _mean_s(history: History, is_like: Callable[[Trial], bool]) -> float:
    """Returns the mean seconds of the trials that pass `is_like`, or of all ended ones if none does."""
    ended = [t for t in history.searched if t.outcome is not None]
    alike = [t.seconds for t in ended if is_like(t)] or [t.seconds for t in ended]
    return objective.mean(alike) or 0.0
