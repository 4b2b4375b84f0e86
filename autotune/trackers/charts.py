"""Names and groups of the metrics charted for a trial, over samples or seconds. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from autotune.core.measurement import Measurement, Metric
from autotune.core.record_names import PARAMETERS, STANDS_FOR
from autotune.core.secrecy import without_secrets
from autotune.core.trial import Outcome
from autotune.trials.report import TrialReport

_NAMES = {
    "elapsed_s": "seconds",
    "throughput": "perf/throughput",
    "mfu": "perf/hfu",
    "learning_rate": "train/learning_rate",
    "grad_norm": "train/grad_norm",
    "peak_memory_bytes": "memory/peak_bytes",
    "others_gpu_percent": "gpu/others_percent",
}
_SYSTEM = {
    *("cpu_percent", "others_cpu_percent", "allowed_cpus", "host_rss_bytes", "children_uss_bytes"),
    *("host_memory_percent", "host_memory_used_bytes", "host_memory_free_bytes"),
}
_GROUPS = {"train_": "train/", "val_": "val/", "memory_": "memory/", "gpu_": "gpu/"}
_OF_ONE_GPU = re.compile(r"gpu_(\d+)_(\w+)")
_CLOCK = "at_s"
_NO_FIGURES = frozenset({_CLOCK, STANDS_FOR, PARAMETERS})  # the last one is in the summary, not a curve
_LARGEST = 2**63


def axes(unit: str) -> dict[str, tuple[str, ...]]:
    """Returns the groups of metrics by their x-axis: the work done, in its `unit`, or seconds."""
    return {unit: ("train/*", "val/*", "perf/*"), "seconds": ("memory/*", "gpu/*", "system/*")}


def metrics(values: Mapping[str, Any], metric: Metric) -> dict[str, float]:
    """Returns the numbers in a record, or in a report's own figures, by chart name; NaN and infinity too."""
    # The group of a name that is not known here.
    other = "train/" if "train_loss" in values and metric.name not in values else "val/"
    numbers = {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, float) or (type(value) is int and abs(value) <= _LARGEST)
    }
    return {
        metric.unit if name == "samples" else _name(name, other): number
        for name, number in numbers.items()
        if name not in {*_NO_FIGURES, metric.unit} or name == "samples"
    }


def _name(key: str, other: str) -> str:
    if key in _NAMES:
        return _NAMES[key]
    if key in _SYSTEM:
        return f"system/{key}"
    if one := _OF_ONE_GPU.fullmatch(key):
        return f"gpu/{one[1]}/{one[2]}"
    for prefix, group in _GROUPS.items():
        if key.startswith(prefix):
            return group + key.removeprefix(prefix)
    return ("perf/" if key.endswith("_s") else other) + key


def score(name: str) -> str:
    return _name(name, "val/")


def rows(report: TrialReport, metric: Metric) -> list[dict[str, float]]:
    """Returns the rows of a report for the run's history: one per record, then one for the whole trial."""
    records, measurement = report.records, report.measurement
    last_at_s = records[-1].get(_CLOCK, 0.0) if records else 0.0
    figures = {
        "samples": report.samples,
        "elapsed_s": report.elapsed_s,
        **_speed(measurement),
        "peak_memory_bytes": measurement.peak_memory_bytes,
        **report.telemetry,
    }
    by_record = (
        metrics(r, metric) | {"seconds": report.elapsed_s - (last_at_s - r.get(_CLOCK, last_at_s))}
        for r in records
    )
    return [*by_record, metrics(figures, metric)]


def summary(outcome: Outcome, measurement: Measurement | None, metric: Metric) -> dict[str, Any]:
    """Returns the run's summary: how and why the trial ended, and its figures over the whole trial."""
    charted: dict[str, Any] = {}
    if measurement:  # else the trial's process was lost
        peak, limit = measurement.peak_memory_bytes, measurement.memory_limit_bytes
        figures = {
            **measurement.scores,  # may contain the samples of the evaluation; overwritten below
            **_speed(measurement),
            "samples": measurement.samples,
            "peak_memory_bytes": peak,
            "memory_peak_share": peak / limit if peak and limit else None,
            **measurement.telemetry,
        }
        charted |= metrics(figures, metric)
        if peak:
            charted["memory/is_rising"] = measurement.memory_is_rising
        if measurement.trained_parameters:
            charted[PARAMETERS] = measurement.trained_parameters
    verdict = {
        "status": outcome.status,
        "failure": outcome.failure or "",
        "stopped_for": outcome.stopped_for or "",
        "reason": outcome.reason,
    }
    return charted | {name: without_secrets(str(value)) for name, value in verdict.items()}


def _speed(measurement: Measurement) -> dict[str, float | None]:
    throughput, flops = measurement.throughput, sum(measurement.flops_per_sample.values())
    if throughput is None:
        return {}
    steps = {
        "throughput": throughput.samples_per_s,
        "steps_per_s": throughput.steps_per_s,
        "mfu": measurement.mfu,
    }
    return steps | ({"tflops_per_s": throughput.samples_per_s * flops / 1e12} if flops else {})


def thin(rows: Iterable[Mapping[str, float]]) -> list[Mapping[str, float]]:
    """Returns the evaluations among the rows, and one row with the latest values of all other figures."""
    evaluations: list[Mapping[str, float]] = []
    rest: dict[str, float] = {}
    for row in rows:
        if any(name.startswith("val/") for name in row):
            evaluations.append(row)
        else:
            rest |= row
    return [*evaluations, rest]
