"""A search as JSON: what `--json` writes. Pure. docs/reference/events.md has every key.

Seconds, bytes and samples per second; what is not known is null, and so is what is no number.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from autotune.core.trial import Throughput, Trial
from autotune.display import advice, view
from autotune.display.estimate import Remaining
from autotune.display.snapshot import Running, Snapshot
from autotune.judging import objective
from autotune.judging.confirm import Claim
from autotune.judging.history import History


def line(values: Mapping[str, Any]) -> str:
    """`values` as one line of strict JSON."""
    return json.dumps(_strict(values), allow_nan=False)


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _strict(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def started(trial: Trial) -> dict[str, Any]:
    """What a trial is to run."""
    return {
        "trial": trial.number,
        "repeats": trial.repeat.of if trial.repeat else None,
        "config": dict(trial.config),
        "knobs": view.knobs(trial.config),
    }


def progress(running: Running, samples: int, remaining: Remaining | None) -> dict[str, Any]:
    """What a running trial has shown, of so many `samples`, and when the search will end."""
    return {
        **started(running.trial),
        "phase": str(running.phase),
        "share": min(1.0, running.trial.measurement.samples / samples),
        **_figures(running.trial),
        "seconds": running.seconds,
        "remaining_s": _range(remaining),
    }


def ended(trial: Trial, baseline: Trial | None) -> dict[str, Any]:
    """How a trial ended; its factor is that of its one run over the `baseline`'s."""
    return {
        **started(trial),
        "status": str(trial.outcome.status) if trial.outcome else None,
        "failure": str(trial.outcome.failure) if trial.outcome and trial.outcome.failure else None,
        "reason": trial.outcome.reason if trial.outcome else "",
        **_figures(trial),
        "factor": objective.factor(trial, baseline) if baseline else None,
        "seconds": trial.seconds,
    }


def _figures(trial: Trial) -> dict[str, Any]:
    m = trial.measurement
    return {
        "samples": m.samples,
        "throughput": _figure(m.throughput),
        "quality": m.quality,
        "peak_memory_bytes": m.peak_memory_bytes,
        "memory_is_rising": m.memory_is_rising,
        "memory_share": objective.memory_share(m),
    }


def _figure(throughput: Throughput | None) -> dict[str, float | None] | None:
    if throughput is None:
        return None
    value, half = throughput.samples_per_s, throughput.half_width_per_s
    ends = (None, None) if half is None else (value - half, value + half)
    return {"value": value, "low": ends[0], "high": ends[1]}


def _range(remaining: Remaining | None) -> dict[str, float] | None:
    return None if remaining is None else {"low": remaining.low_s, "high": remaining.high_s}


def result(history: History, best: tuple[Trial, Claim | None] | None) -> dict[str, Any]:
    """What was found: the `best`, with its factor over the baseline, and how sure that is."""
    baseline, target = history.baseline, history.space.objective.target
    return {
        "verdict": str(advice.verdict(best)),
        "best": ended(best[0], baseline) if best else None,
        "baseline": ended(baseline, baseline) if baseline else None,
        "factor": _factor(best, baseline, target) if best and baseline else None,
        "rounds": best[1].rounds if best and best[1] else 0,
        "seeds": best[1].seeds if best and best[1] else 0,
    }


def _factor(
    best: tuple[Trial, Claim | None], baseline: Trial, target: float | None
) -> dict[str, float | None]:
    """By the repeats, or else by the two single runs."""
    trial, claim = best
    if claim is not None:
        return {"value": claim.factor, "low": claim.low, "high": claim.high}
    ends = None if target is not None else objective.factor_interval(trial, baseline)
    low, high = ends or (None, None)
    return {"value": objective.factor(trial, baseline, target), "low": low, "high": high}


def status(shown: Snapshot) -> dict[str, Any]:
    """All of a snapshot."""
    space, plan = shown.space, shown.plan
    return {
        "session": shown.session,
        "device": shown.device,
        "state": shown.state,
        "planned": plan.trials,
        "passed_over": shown.passed_over,
        "spent_s": plan.spent_s,
        "time_limit_s": plan.time_s,
        "remaining_s": _range(shown.remaining),
        "quality": space.objective.quality,
        "samples_per_trial": space.budget.samples_per_trial,
        "running": [progress(r, space.budget.samples_per_trial, None) for r in shown.running],
        "trials": [ended(t, shown.history.baseline) for t in shown.trials],
        **result(shown.history, shown.best),
    }
