"""A search as JSON, as `--json` writes it; docs/reference/events.md has every key. Pure.

Values are in seconds, bytes and samples per second; unknown ones and NaN are null.
"""

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from autotune.core.trial import Trial
from autotune.display import advice, rows, view
from autotune.display.estimate import Remaining
from autotune.display.snapshot import RunningTrial, Snapshot
from autotune.judging.accounts import costs, overhead
from autotune.judging.decisions.claims import Claim
from autotune.judging.decisions.history import History
from autotune.space.space import Space


def line(values: Mapping[str, Any], indent: int | None = None) -> str:
    """Returns `values` as strict JSON, on one line or indented."""
    return json.dumps(to_jsonable_python(values, inf_nan_mode="null"), allow_nan=False, indent=indent)


def started(trial: Trial) -> dict[str, Any]:
    """Returns the keys of a trial: its number and its configuration."""
    return {
        "trial": trial.number,
        "repeats": trial.repeat.of if trial.repeat else None,
        "config": dict(trial.config),
        "knobs": view.knobs(trial.config),
        "node": trial.measurement.node or None,
    }


def progress(running: RunningTrial, space: Space, remaining: Remaining | None) -> dict[str, Any]:
    """Returns the figures of a running trial, and when the search will end."""
    measured = running.trial.measurement
    return {
        **started(running.trial),
        "phase": str(running.phase),
        "share": min(1.0, measured.samples / space.samples(running.trial.config)),
        **vars(rows.run_figures(measured, space.objective)),
        "seconds": running.seconds,
        "remaining_s": _range(remaining),
    }


def ended(trial: Trial, history: History) -> dict[str, Any]:
    """Returns how a trial ended: the figures of its settings and of its own `run`, and the gain."""
    row = rows.row(trial, history)
    outcome = ("status", "failure", "stopped_for", "reason")
    figures = ("samples", "throughput", "quality", "peak_memory_bytes", "memory_is_rising", "memory_share")
    return {
        **started(trial),
        **{name: getattr(row, name) for name in (*outcome, *figures, "run", "seconds")},
        "factor": row.factor.value if row.factor else None,
    }


def _range(remaining: Remaining | None) -> dict[str, float] | None:
    return None if remaining is None else {"low": remaining.low_s, "high": remaining.high_s}


def result(history: History, best: tuple[Trial, Claim | None] | None) -> dict[str, Any]:
    """Returns the result: the `best`, its factor over the baseline, and its confirmation."""
    trial, claim = best or (None, None)
    baseline, spent = history.baseline, overhead.time_spent(trial, history) if trial else None
    return {
        "verdict": str(advice.verdict(best)),
        "best": ended(trial, history) if trial else None,
        "baseline": ended(baseline, history) if baseline else None,
        "factor": costs.gain(trial, history) if trial and baseline else None,
        "rounds": claim.rounds if claim else 0,
        "seeds": claim.seeds if claim else 0,
        "evaluation_share": spent.evaluations if spent else None,
        "pause_share": spent.pauses if spent else None,
    }


def status(snapshot: Snapshot) -> dict[str, Any]:
    """Returns the whole snapshot."""
    space, plan = snapshot.space, snapshot.plan
    nodes = []
    for node in snapshot.cluster.nodes if snapshot.cluster else ():
        kind = {name: getattr(node.kind, name) for name in ("device", "driver", "probe_s")}
        more = {"cpus": node.cpus, "gpus": node.gpus, "left_out": node.fault or None}
        nodes.append({"name": node.name, **kind, **more})
    return {
        "session": snapshot.session,
        "device": snapshot.device,
        "nodes": nodes,
        "state": snapshot.state,
        "planned": plan.trials,
        "passed_over": len(snapshot.passed_over),
        "spent_s": plan.spent_s,
        "time_limit_s": plan.time_s,
        "remaining_s": _range(snapshot.remaining),
        "quality": space.objective.quality,
        "minimize": space.objective.minimize is not None,
        "unit": space.unit,
        "samples_per_trial": space.budget.samples_per_trial,
        "running": [progress(r, space, None) for r in snapshot.running],
        "trials": [ended(t, snapshot.history) for t in snapshot.trials],
        **result(snapshot.history, snapshot.best),
    }
