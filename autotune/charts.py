"""Under which names the figures of a trial are charted: groups of metrics over samples and seconds. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autotune.secrecy import cleaned

_NAMES = {
    "samples": "samples",
    "elapsed_s": "seconds",
    "throughput": "perf/throughput",
    "learning_rate": "train/learning_rate",
    "grad_norm": "train/grad_norm",
    "peak_memory_bytes": "memory/peak_bytes",
    "cpu_percent": "system/cpu_percent",
    "host_rss_bytes": "system/host_rss_bytes",
    "children_uss_bytes": "system/children_uss_bytes",
    "host_memory_percent": "system/host_memory_percent",
    "others_cpu_percent": "system/others_cpu_percent",
    "others_gpu_percent": "gpu/others_percent",
    "allowed_cpus": "system/allowed_cpus",
}
_GROUPS = {"train_": "train/", "val_": "val/", "memory_": "memory/", "gpu_": "gpu/"}
AXES = {"samples": ("train/*", "val/*", "perf/*"), "seconds": ("memory/*", "gpu/*", "system/*")}
_CLOCK = "at_s"
_LARGEST = 2**63


def metrics(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers in a record, or among a result's own values, under the names that the charts have.

    What is not known by name is a training metric beside a `train_loss`, and a validation score elsewhere.
    """
    other = "train/" if "train_loss" in values else "val/"
    return {
        _name(key, other): float(value)
        for key, value in values.items()
        if _is_figure(value) and key != _CLOCK
    }


def _is_figure(value: object) -> bool:
    """Whether it can be charted; what is no number as the value of a number can, and shows as that."""
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) <= _LARGEST
    return isinstance(value, float)


def _name(key: str, other: str) -> str:
    if key in _NAMES:
        return _NAMES[key]
    for prefix, group in _GROUPS.items():
        if key.startswith(prefix):
            return group + key.removeprefix(prefix)
    return ("perf/" if key.endswith("_s") else other) + key


def rows(result: Mapping[str, Any]) -> list[dict[str, float]]:
    """A result as lines of the run's history: one for each record, then one for the trial as a whole."""
    records: Sequence[Mapping[str, Any]] = result.get("records", ())
    end_s = result["elapsed_s"]
    last_at_s = records[-1].get(_CLOCK, 0.0) if records else 0.0
    own = {key: result.get(key) for key in ("samples", "elapsed_s", "throughput", "peak_memory_bytes")}
    return [
        *(metrics(r) | {"seconds": end_s - (last_at_s - r.get(_CLOCK, last_at_s))} for r in records),
        metrics({**own, **result.get("telemetry", {})}),
    ]


def summary(outcome: Mapping[str, Any], measurement: Mapping[str, Any]) -> dict[str, Any]:
    """What the run is to be known by: how the trial ended and why, and its figures over the whole trial."""
    throughput = measurement.get("throughput") or {}
    peak, limit = measurement.get("peak_memory_bytes"), measurement.get("memory_limit_bytes")
    share = peak / limit if peak and limit else None
    figures = {
        "throughput": throughput.get("samples_per_s"),
        "samples": measurement.get("samples"),
        "peak_memory_bytes": peak,
        "memory_peak_share": share,
        **measurement.get("scores", {}),
        **measurement.get("telemetry", {}),
    }
    verdict = {key: outcome.get(key) or "" for key in ("status", "failure", "reason")}
    return {
        **metrics(figures),
        **({"memory/is_rising": bool(measurement.get("memory_is_rising"))} if peak else {}),
        **{key: cleaned(str(value)) for key, value in verdict.items()},
    }


def thinned(rows: Iterable[Mapping[str, float]]) -> list[Mapping[str, float]]:
    """The evaluations among a result's rows, and of all the others one with the latest of each figure."""
    evaluations: list[Mapping[str, float]] = []
    rest: dict[str, float] = {}
    for row in rows:
        if any(name.startswith("val/") for name in row):
            evaluations.append(row)
        else:
            rest |= row
    return [*evaluations, rest]
