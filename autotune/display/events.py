"""A search as JSON: what `--json` writes. Pure. docs/reference/events.md has every key.

Seconds, bytes and samples per second; an unknown value is null, and so is one that is not a number.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from autotune.core.trial import Measurement, Trial
from autotune.display import advice, view
from autotune.display.estimate import Remaining
from autotune.display.snapshot import Running, Snapshot
from autotune.judging import estimates, gains, objective, outside, quality, reasons
from autotune.judging.claims import Claim
from autotune.judging.estimates import Figure
from autotune.judging.history import History
from autotune.space.space import Space


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
    """What a trial will run."""
    return {
        "trial": trial.number,
        "repeats": trial.repeat.of if trial.repeat else None,
        "config": dict(trial.config),
        "knobs": view.knobs(trial.config),
    }


def progress(running: Running, space: Space, remaining: Remaining | None) -> dict[str, Any]:
    """What a running trial has shown of a whole one, and when the search will end."""
    samples = space.budget.samples_per_trial
    return {
        **started(running.trial),
        "phase": str(running.phase),
        "share": min(1.0, running.trial.measurement.samples / samples),
        **_of_run(running.trial, space),
        "seconds": running.seconds,
        "remaining_s": _range(remaining),
    }


def ended(trial: Trial, history: History) -> dict[str, Any]:
    """How a trial ended: what is known of its settings, what its own `run` has measured, the gain."""
    shown, outcome = history.shown(trial), trial.outcome
    return {
        **started(trial),
        "status": str(outcome.status) if outcome else None,
        "failure": str(outcome.failure) if outcome and outcome.failure else None,
        "stopped_for": str(outcome.stopped_for) if outcome and outcome.stopped_for else None,
        "reason": reasons.why(trial, history),
        "samples": trial.measurement.samples,
        "throughput": _figure(shown.throughput),
        "quality": shown.quality,
        **_memory(shown.memory),
        "run": _of_run(trial, history.space),
        "factor": _value(gains.gain(trial, history)),
        "seconds": trial.seconds,
    }


def _of_run(trial: Trial, space: Space) -> dict[str, Any]:
    """What a trial's own run has measured."""
    m = trial.measurement
    return {
        "samples": m.samples,
        "throughput": _figure(estimates.of_run(m.throughput)),
        "quality": quality.shown(m.quality, space.objective),
        **_memory(m),
    }


def _memory(measurement: Measurement) -> dict[str, Any]:
    return {
        "peak_memory_bytes": measurement.peak_memory_bytes,
        "memory_is_rising": measurement.memory_is_rising,
        "memory_share": objective.memory_share(measurement),
    }


def _figure(found: Figure | None) -> dict[str, float | None] | None:
    return None if found is None else {"value": found.value, "low": found.low, "high": found.high}


def _value(found: Figure | None) -> float | None:
    return None if found is None else found.value


def _range(remaining: Remaining | None) -> dict[str, float] | None:
    return None if remaining is None else {"low": remaining.low_s, "high": remaining.high_s}


def result(history: History, best: tuple[Trial, Claim | None] | None) -> dict[str, Any]:
    """What was found: the `best`, with its factor over the baseline, and how sure that is."""
    baseline, spent = history.baseline, outside.spent(best[0], history) if best else None
    return {
        "verdict": str(advice.verdict(best)),
        "best": ended(best[0], history) if best else None,
        "baseline": ended(baseline, history) if baseline else None,
        "factor": _figure(gains.gain(best[0], history)) if best and baseline else None,
        "rounds": best[1].rounds if best and best[1] else 0,
        "seeds": best[1].seeds if best and best[1] else 0,
        "evaluation_share": spent.evaluations if spent else None,
        "pause_share": spent.pauses if spent else None,
    }


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
        "minimize": space.objective.minimize is not None,
        "unit": space.unit,
        "samples_per_trial": space.budget.samples_per_trial,
        "running": [progress(r, space, None) for r in shown.running],
        "trials": [ended(t, shown.history) for t in shown.trials],
        **result(shown.history, shown.best),
    }
