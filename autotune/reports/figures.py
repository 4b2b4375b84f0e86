"""Computes the figures of a session's report from its contents. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autotune.compare import results, verdict
from autotune.compare.results import ComparisonResults, Runs
from autotune.core.settings import MICRO_BATCH, PRECISION, SEED, Config
from autotune.core.trial import RejectedSuggestion
from autotune.display import advice, rows, words
from autotune.display.snapshot import ENDED, INTERRUPTED, RUNNING
from autotune.judging.accounts import memory_forecast
from autotune.judging.accounts.costs import Prices
from autotune.judging.accounts.memory_forecast import MemoryForecast
from autotune.judging.decisions import ablation, confirm, objective, quality
from autotune.judging.decisions.history import History
from autotune.memory.feasibility import MemoryModel
from autotune.reports.model import Compared, Predicted, SessionReport, Skipped
from autotune.reports.recommendation import answer
from autotune.space import configurations
from autotune.space.sections import Objective
from autotune.storage.store import Options
from autotune.storage.study_file import SearchPlan
from autotune.workloads.base import OwnSection, Workload


@dataclass(frozen=True)
class SessionFacts:
    """The contents of a session."""

    path: Path  # as the user would write it
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


def report(facts: SessionFacts) -> SessionReport:
    history, space, provenance = facts.history, facts.history.space, facts.provenance
    is_open = facts.state == ENDED and advice.is_unconfirmed(history)
    resume = advice.continue_command(history, facts.plan, facts.path)
    result = answer(
        history,
        facts.workload,
        facts.path,
        go_on=resume if facts.state == INTERRUPTED or is_open else "",
        training_samples=space.training.samples or provenance.get("training_samples"),
        prices=facts.prices,
    )
    limits = [limit for t in history.trials if (limit := t.measurement.memory_limit_bytes)]
    limit = min(limits, default=facts.options.memory_limit_bytes)  # as the memory model has it
    goal, models = space.objective, facts.compared.models
    asks_quality = goal.target is not None or not goal.takes_any_quality
    noise = quality.noise([history.runs_of(trial.number) for trial in history.searched])
    return SessionReport(
        session=str(facts.path),
        created=str(provenance.get("created", "")),
        state=facts.state,
        quality=goal.quality,
        keep=goal.keep,
        select=goal.select,
        target=goal.target,
        memory_fraction=space.limits.memory_fraction,
        memory_limit_bytes=limit,
        samples_per_trial=space.budget.samples_per_trial,
        planned=facts.plan.trials,
        seconds=facts.plan.spent_s or sum(t.seconds for t in history.trials),
        answer=result,
        least_quality=quality.in_users_sign(history.least_quality, goal) if asks_quality else None,
        trials=rows.rows(history, result.best.trial if result.best and not result.is_open else None),
        predicted=predicted(result.best.config, history, limit) if result.best else (),
        ablation=tuple(ablation.steps(history)),
        which_precision=verdict.verdict(models, facts.compared.goal, noise),
        compared=tuple(_compared(label, models, goal) for label in models),
        own=facts.own,
        skipped=skipped(facts.passed_over),
        provenance=_provenance(facts),
        minimize=goal.minimize is not None,
        within=goal.within,
        unit=space.unit,
        speed=goal.speed,
        by_precision=PRECISION in space.baseline,
        writes_reports=facts.workload.program is not None,
        constraints=goal.constraints,
        elsewhere=_elsewhere(history),
        going_on=_going_on(facts, resume),
    )


def _elsewhere(history: History) -> MemoryForecast | None:
    """Returns what fits on other GPUs; None if nothing is recommended, or no GPU was used."""
    recommended = confirm.recommended(history)
    if recommended is None or MICRO_BATCH not in history.space.drawn_knobs:
        return None
    forecast = memory_forecast.forecast(recommended[0], history)
    return forecast if forecast.is_of_gpu else None


def _going_on(facts: SessionFacts, resume: str) -> str:
    """Returns the command that runs more trials; empty if the search is running, or can run no more."""
    if facts.state == RUNNING or facts.history.failed_baseline:
        return ""
    is_complete = facts.plan.trials <= len(facts.history.searched)
    more = facts.state == ENDED and (facts.plan.left_s != 0 or is_complete)
    return f"{resume} --trials 20" if more else resume


def _compared(label: str, runs: Runs, goal: Objective) -> Compared:
    """Returns the results of a label; figures that are not means come from its first model."""
    model, done = results.first_models(runs)[label], [each for each in runs[label] if each.completed]
    return Compared(
        label=label,
        config=model.config,
        status=model.outcome.status.value,
        reason=model.outcome.reason,
        trial=model.trial,
        samples=model.samples,
        throughput=results.throughput(done),
        training_peak_bytes=model.training.peak_memory_bytes,
        training_memory_is_rising=model.training.memory_is_rising,
        scores=results.means([each.scores for each in done if each.scores]),
        reports_per_s=objective.mean([m.reports_per_s for m in done if m.reports_per_s is not None]),
        writing_peak_bytes=model.peak_memory_bytes,
        curve=quality.curve_in_users_sign(model.training.curve, goal),
        seeds=len(done),
        steps=model.steps,
        beside_fp32=results.loss_over_fp32(model, runs),
        checkpoint_bytes=model.checkpoint_bytes,
        parameters=model.parameters,
    )


def _provenance(facts: SessionFacts) -> dict[str, Any]:
    space, trials = facts.history.space, facts.history.trials
    is_shared = [t.measurement.shared for t in trials if t.measurement.throughput]
    seeded = (facts.workload.with_seed(space.settings(t.config), t.seed) for t in trials)
    return {
        **{name: fact for name, fact in facts.provenance.items() if name != "space"},
        "seeds": sorted({int(settings.get(SEED) or 0) for settings in seeded}),
        "measured_alone": is_shared.count(False),
        "measured_beside_others": is_shared.count(True),
        "options": asdict(facts.options),
    }


def predicted(config: Config, history: History, memory_limit_bytes: int | None) -> tuple[Predicted, ...]:
    """Returns predicted peaks for every precision and micro-batch, other settings as in `config`."""
    space, fraction = history.space, history.space.limits.memory_fraction
    model = MemoryModel(history.trials, fraction=fraction, limit_bytes=memory_limit_bytes, known=space.known)
    knob = space.drawn_knobs.get(PRECISION)
    precisions = (knob.drawn_from.choice if knob else None) or ()
    configs: list[Config] = [{**config, PRECISION: precision} for precision in precisions] or [config]
    rows = []
    for chosen in configs:
        sizes = {size: configurations.resized(space, chosen, size) for size in space.micro_batch_sizes}
        predictions = {size: model.predict(resized) for size, resized in sizes.items()}
        peaks = {size: peak for size, peak in predictions.items() if peak is not None}
        if not peaks:
            continue
        row = Predicted(
            precision=str(chosen.get(PRECISION, "")),
            micro_batch_size=tuple(peaks),
            peak_bytes=tuple(peak.expected_bytes for peak in peaks.values()),
            low_bytes=tuple(peak.low_bytes for peak in peaks.values()),
            high_bytes=tuple(peak.high_bytes for peak in peaks.values()),
        )
        rows.append(row)
    return tuple(rows)


def skipped(passed_over: Sequence[RejectedSuggestion]) -> tuple[Skipped, ...]:
    """Returns the rejected suggestions by reason, most frequent first."""
    groups: dict[str, list[str]] = {}
    for one in passed_over:
        groups.setdefault(words.without_figures(one.reason), []).append(one.reason)
    reasons = [Skipped(reason, len(group), example=group[0]) for reason, group in groups.items()]
    return tuple(sorted(reasons, key=lambda s: s.count, reverse=True))
