"""The recommended configuration compared with the baseline, and its evidence. Pure functions of trials."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from autotune.compare import results
from autotune.core.measurement import Measurement
from autotune.core.settings import MICRO_BATCH
from autotune.core.trial import Trial
from autotune.display import advice, view, words
from autotune.display.advice import WinnerState
from autotune.display.cautions import cautions, spending
from autotune.judging.accounts import costs, overhead
from autotune.judging.accounts.costs import Prices
from autotune.judging.accounts.overhead import TimeShares
from autotune.judging.decisions import confirm, objective, quality
from autotune.judging.decisions.history import History
from autotune.judging.measurement.estimates import Figure
from autotune.reports.model import Answer, Side
from autotune.space.space import Space
from autotune.storage import store
from autotune.storage.records import is_score
from autotune.workloads.base import Workload

_FEWEST_SEEDS = 3
_FEWEST_STUDIES = 100


def answer(
    history: History,
    workload: Workload,
    session: Path,
    *,
    go_on: str = "",
    training_samples: int | None = None,
    prices: Prices | None = None,
) -> Answer:
    """Returns the recommendation so far; `session` is as the user writes it, `go_on` continues it."""
    going_on = (go_on,) if go_on else ()
    baseline, recommended = history.baseline, confirm.recommended(history)
    if baseline is None or recommended is None:
        return _none(history, session, going_on)
    trial, claim = recommended
    is_better, is_open = trial.number != baseline.number, advice.is_unconfirmed(history)
    spent = [overhead.time_spent(each, history) for each in (baseline, trial)]
    is_counted = overhead.counts_evaluations(spent, history.space)

    def side(each: Trial, shares: TimeShares | None) -> Side:
        samples = round((training_samples or 0) / history.length_ratio(each))
        whole_s = shares.whole_s(samples, is_counted=is_counted) if shares and training_samples else None
        return _side(each, history, shares, whole_s, prices)

    theirs, ours = map(side, (baseline, trial), spent)
    settings = f"Trial {trial.number}, {view.knobs(trial.config)}"
    if is_open:
        sentence = advice.possible_gain(history, go_on)
    elif not is_better:
        sentence = view.no_improvement(history)
    elif claim is not None:
        sentence = f"{view.confirmation(claim, history)}. {settings}."
    else:
        sentence = f"{settings}: {view.gain(trial, history)}. {view.missing_confirmation(trial, history)}"
    commands = [*(view.next_commands(session, workload) if is_better else ()), *going_on]
    return Answer(
        verdict=advice.verdict(recommended),
        promise=view.promise(history),
        sentence=sentence,
        is_open=is_open,
        baseline=theirs,
        best=ours,
        factor=costs.gain(trial, history) if is_better else None,
        speed=history.factor(trial) if is_better else None,
        rounds=claim.rounds if claim else 0,
        full_training_samples=training_samples,
        cautions=(
            *cautions(history),
            *_few(theirs, ours, history.space, workload),
            *(_unpriced(prices, (theirs, ours), training_samples) if prices else ()),
        ),
        commands=() if is_open else tuple(commands),
        outside=tuple(spending(history)),
        evaluations_counted=is_counted,
        prices=prices,
    )


def _unpriced(prices: Prices, sides: Sequence[Side], samples: int | None) -> Iterator[str]:
    """Yields why the full training has no cost, although prices were given."""
    if samples is None:
        yield "No cost: the length of the training is unknown. Give training.samples in the search space."
    elif prices.per_kwh is not None and any(side.cost and side.cost.kwh is None for side in sides):
        yield "No cost: no run that had the GPU to itself shows its power, and --price-per-kwh needs it."


def _none(history: History, session: Path, going_on: tuple[str, ...]) -> Answer:
    """Returns the answer of a search without a completed baseline: there is nothing to compare with."""
    failed = history.failed_baseline
    if failed is None or failed.outcome is None:
        return Answer(WinnerState.NONE, view.NO_RESULT, commands=going_on)
    return Answer(
        WinnerState.NONE,
        f"{view.NO_RESULT} It {failed.outcome}: {failed.outcome.reason}",
        cautions=tuple(cautions(history)),
        commands=(store.search_command(session),),
    )


def _few(baseline: Side, best: Side, space: Space, workload: Workload) -> list[str]:
    """Returns cautions about a quality that rests on few seeds or studies."""
    name, lines = space.objective.quality, []
    if min(baseline.seeds, best.seeds) < _FEWEST_SEEDS:
        theirs = f", trial {best.trial}'s with {best.seeds}" if best.trial != baseline.trial else ""
        seeds = words.plural(baseline.seeds, "seed")
        lines.append(f"Few seeds: the baseline's {name} was measured with {seeds}{theirs}.")
    studies = baseline.scores.get(workload.validation_size) if workload.validation_size else None
    if studies is not None and studies < _FEWEST_STUDIES:
        lines.append(f"Small validation split: {name} is measured on {studies:,.0f} studies.")
    return lines


def _side(
    trial: Trial, history: History, spent: TimeShares | None, whole_s: Figure | None, prices: Prices | None
) -> Side:
    origin, goal = trial.measurement.origin, history.space.objective
    runs = [t for t in history.runs_of(trial.number) if t.measurement.origin == origin] or [trial]
    runs = [t for t in runs if not t.measurement.shared] or runs
    scored = [t for t in history.quality_runs(trial) if t.quality is not None]
    measurements, memory = [t.measurement for t in runs], history.memory(trial)
    # The counter of the GPU's energy covers all trials at once.
    alone = [m for m in measurements if not m.shared and m.samples and "gpu_energy_j" in m.telemetry]
    joules = math.fsum(m.telemetry["gpu_energy_j"] for m in alone)
    judged = quality.figure_in_users_sign(history.quality(trial), goal)
    scores = results.means(
        [{n: value for n, value in t.measurement.scores.items() if is_score(n)} for t in scored]
    )
    if judged and goal.quality in scores:  # not that of the last evaluation
        scores[goal.quality] = judged.value
    return Side(
        trial=trial.number,
        config=trial.config,
        knobs=view.knobs(trial.config),
        throughput=history.throughput(trial),
        runs=sum(m.throughput is not None for m in measurements),
        quality=judged,
        seeds=len({t.seed for t in scored}),
        scores=scores,
        peak_memory_bytes=memory.peak_memory_bytes,
        memory_is_rising=memory.memory_is_rising,
        memory_share=objective.memory_share(memory),
        gpu_percent=_mean_of("gpu_utilisation_percent", measurements),
        cpu_percent=_mean_of("cpu_percent", measurements),
        joules_per_sample=joules / sum(m.samples for m in alone) if alone else None,
        full_training_s=whole_s.value if whole_s else None,
        step_s=_step_s(trial, measurements, spent, history.space),
        evaluation_share=spent.evaluations if spent else None,
        pause_share=spent.pauses if spent else 0.0,
        cost=costs.cost(trial, history, whole_s, prices) if whole_s else None,
        planned=history.length(trial) if goal.target is None else None,
        run_s=history.run_s(trial),
        mfu=objective.mean([m.mfu for m in measurements if m.mfu is not None]),
    )


def _mean_of(name: str, measurements: Sequence[Measurement]) -> float | None:
    return objective.mean([m.telemetry[name] for m in measurements if name in m.telemetry])


def _step_s(
    trial: Trial, measurements: Sequence[Measurement], spent: TimeShares | None, space: Space
) -> dict[str, float]:
    """Returns the seconds of each phase of an optimizer step: its share of the steps, times a step's time."""
    if spent is None or MICRO_BATCH not in space.settings(trial.config):
        return {}
    if space.unit == "samples":
        whole_s = space.effective_batch_size(trial.config) * spent.step_s
    else:  # the number of units in a step varies
        timed = [m.throughput for m in measurements if m.throughput and m.throughput.steps]
        whole_s = objective.mean([t.seconds / t.steps for t in timed]) or 0.0
    shares = results.means([m.step_shares for m in measurements])
    return {phase.removesuffix("_s"): share * whole_s for phase, share in shares.items()}
