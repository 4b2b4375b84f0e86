"""The recommended configuration compared with the baseline, and its evidence. Pure functions of trials."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from autotune.core.measurement import Measurement
from autotune.core.settings import MICRO_BATCH
from autotune.core.trial import Trial
from autotune.display import advice, view
from autotune.display.advice import WinnerState
from autotune.display.cautions import cautions, spending
from autotune.judging.accounts import costs, overhead
from autotune.judging.accounts.costs import Prices
from autotune.judging.accounts.overhead import TimeShares
from autotune.judging.decisions import confirm, objective, quality
from autotune.judging.decisions.claims import Claim
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
    """Returns what to run according to the trials so far; `session` is a path as the user would write it.

    `go_on` is the command that continues a search that has not ended, or is not confirmed.
    """
    going_on = (go_on,) if go_on else ()
    space, baseline, recommended = history.space, history.baseline, confirm.recommended(history)
    if baseline is None or recommended is None:
        return _none(history, session, going_on)
    trial, claim = recommended
    is_better = trial.number != baseline.number
    is_open = advice.is_unconfirmed(history)
    spent = [overhead.time_spent(one, history) for one in (baseline, trial)]
    is_counted = _counts(spent, history)
    whole_s = [
        _whole_s(one, training_samples, history.shorter(of), is_counted=is_counted)
        for of, one in zip((baseline, trial), spent, strict=True)
    ]
    sides = zip((baseline, trial), spent, whole_s, strict=True)
    theirs, ours = (_side(one, history, cost, seconds, prices) for one, cost, seconds in sides)
    return Answer(
        verdict=advice.verdict(recommended),
        promise=view.promise(history),
        sentence=advice.possibly(history, go_on) if is_open else _sentence(recommended, history),
        is_open=is_open,
        baseline=theirs,
        best=ours,
        factor=costs.gain(trial, history) if is_better else None,
        speed=history.factor(trial) if is_better else None,
        rounds=claim.rounds if claim else 0,
        full_training_samples=training_samples,
        cautions=(
            *view.refuted(history),
            *cautions(history),
            *_few(theirs, ours, space, workload),
            *(_unpriced(prices, (theirs, ours), training_samples) if prices else ()),
        ),
        commands=()
        if is_open
        else (*(view.next_commands(session, workload) if is_better else ()), *going_on),
        outside=tuple(spending(history)),
        evaluations_counted=is_counted,
        prices=prices,
    )


def _counts(spent: Sequence[TimeShares | None], history: History) -> bool:
    """Returns True if the time of evaluations in the full training is known on both sides."""
    known = all(one is not None and one.evaluations is not None for one in spent)
    return known or history.space.objective.counts_evaluations


def _whole_s(
    spent: TimeShares | None, samples: int | None, shorter: float, *, is_counted: bool
) -> Figure | None:
    """Returns the seconds of the full training, `shorter` times shorter than the baseline's `samples`.

    None if its length is unknown.
    """
    return spent.whole_s(round(samples / shorter), is_counted=is_counted) if spent and samples else None


def _unpriced(prices: Prices, sides: Sequence[Side], samples: int | None) -> Iterator[str]:
    """Yields why the full training has no cost, although prices were given."""
    if samples is None:
        yield (
            "No cost: the length of the whole training is not known. Give training.samples in the search "
            "space."
        )
    elif prices.per_kwh is not None and any(side.cost and side.cost.kwh is None for side in sides):
        yield "No cost: no run that had the GPU to itself shows its power, and --price-per-kwh needs it."


def _none(history: History, session: Path, going_on: tuple[str, ...]) -> Answer:
    """Returns the answer without a baseline: nothing can be compared."""
    failed = history.failed_baseline
    if failed is None or failed.outcome is None:
        return Answer(WinnerState.NONE, view.NO_RESULT, commands=going_on)
    sentence = f"{view.NO_RESULT} It {failed.outcome}: {failed.outcome.reason}"
    return Answer(
        WinnerState.NONE,
        sentence,
        cautions=tuple(cautions(history)),
        commands=(store.search_command(session),),
    )


def _sentence(recommended: tuple[Trial, Claim | None], history: History) -> str:
    trial, claim = recommended
    if not trial.number:
        return view.nothing_better(history)
    which = f"trial {trial.number}, {view.knobs(trial.config)}."
    if claim is not None:
        return f"{view.confirmed(claim, history)}: {which}"
    return f"{view.gain(trial, history)}: {which} {view.unconfirmed(trial, history)}"


def _few(baseline: Side, best: Side, space: Space, workload: Workload) -> list[str]:
    """Returns cautions about a quality that rests on few seeds or studies."""
    name, lines = space.objective.quality, []
    if min(baseline.seeds, best.seeds) < _FEWEST_SEEDS:
        theirs = f", trial {best.trial} with {best.seeds}" if best.trial != baseline.trial else ""
        lines.append(f"Few seeds: {name} of the baseline was measured with {baseline.seeds}{theirs}.")
    studies = baseline.scores.get(workload.validation_size) if workload.validation_size else None
    if studies is not None and studies < _FEWEST_STUDIES:
        lines.append(f"Small validation split: {name} is that of {studies:.0f} studies.")
    return lines


def _side(
    trial: Trial, history: History, spent: TimeShares | None, whole_s: Figure | None, prices: Prices | None
) -> Side:
    """Returns the figures of `trial`, with `spent` time by part and `whole_s` of the full training."""
    runs = _speed_runs(trial, history)
    scored_runs = [t for t in history.quality_runs(trial) if t.quality is not None]
    measurements, memory = [t.measurement for t in runs], history.memory(trial)
    throughput = history.throughput(trial)
    quality_shown = quality.figure_in_users_sign(history.quality(trial), history.space.objective)
    return Side(
        trial=trial.number,
        config=trial.config,
        knobs=view.knobs(trial.config),
        throughput=throughput,
        runs=sum(m.throughput is not None for m in measurements),
        quality=quality_shown,
        seeds=len({t.seed for t in scored_runs}),
        scores=_scored(_means([_scores(t.measurement) for t in scored_runs]), quality_shown, history.space),
        peak_memory_bytes=memory.peak_memory_bytes,
        memory_is_rising=memory.memory_is_rising,
        memory_share=objective.memory_share(memory),
        gpu_percent=_mean_of("gpu_utilisation_percent", measurements),
        cpu_percent=_mean_of("cpu_percent", measurements),
        joules_per_sample=_joules_per_sample(measurements),
        full_training_s=whole_s.value if whole_s else None,
        step_s=_step_s(trial, measurements, spent, history.space),
        evaluation_share=spent.evaluations if spent else None,
        pause_share=spent.pauses if spent else 0.0,
        cost=costs.cost(trial, history, whole_s, prices) if whole_s else None,
        planned=history.length(trial) if history.space.objective.target is None else None,
        mfu=objective.mean([m.mfu for m in measurements if m.mfu is not None]),
    )


def _speed_runs(trial: Trial, history: History) -> list[Trial]:
    """Returns the runs of `trial`: only those alone on the device, if there are any."""
    every = [t for t in history.runs_of(trial.number) if t.measurement.origin == trial.measurement.origin]
    return [t for t in every if not t.measurement.shared] or every or [trial]


def _scored(scores: Mapping[str, float], quality: Figure | None, space: Space) -> dict[str, float]:
    """Returns `scores` with the `quality` that is judged, not that of the last evaluation.

    Both have the user's sign.
    """
    name = space.objective.quality
    return {**scores, **({name: quality.value} if quality and name in scores else {})}


def _scores(measurement: Measurement) -> dict[str, float]:
    return {name: value for name, value in measurement.scores.items() if is_score(name)}


def _means(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the means of the figures that all have, by name."""
    common = [name for name in figures[0] if all(name in other for other in figures)] if figures else []
    return {name: math.fsum(values[name] for values in figures) / len(figures) for name in common}


def _mean_of(name: str, measurements: Sequence[Measurement]) -> float | None:
    return objective.mean([m.telemetry[name] for m in measurements if name in m.telemetry])


def _joules_per_sample(measurements: Sequence[Measurement]) -> float | None:
    """Returns the GPU's energy per sample; its counter covers all trials, so only those alone on it count."""
    unshared = [m for m in measurements if not m.shared and m.samples and "gpu_energy_j" in m.telemetry]
    samples = sum(m.samples for m in unshared)
    return math.fsum(m.telemetry["gpu_energy_j"] for m in unshared) / samples if samples else None


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
    shares = _means([m.step_shares for m in measurements])
    return {phase.removesuffix("_s"): share * whole_s for phase, share in shares.items()}
