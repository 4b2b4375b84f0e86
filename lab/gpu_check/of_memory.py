"""Checks that a GPU's memory is limited, released and shared as trials assume."""

import os
import platform
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import psutil

from autotune.core import units
from autotune.core.settings import MICRO_BATCH, Setting
from autotune.core.trial import Failure
from autotune.system import devices
from lab.gpu_check import verdicts
from lab.gpu_check.bench import Bench, Ran, seconds_until_back
from lab.gpu_check.verdicts import Found

_STEPS_TO_FILL = 64  # to fill a GPU's memory
_ENDLESS = 10**6
_STEPS_BEFORE_KILL = 5
_HELD_BYTES = 2**29
_MICRO_BATCH = 4
_STEPS = 10
_SETTINGS: dict[str, Setting] = {MICRO_BATCH: _MICRO_BATCH, "eval_studies": _MICRO_BATCH}
_OVER_CAP = 1.02  # tolerance: blocks are two mebibytes large


def out_of_memory(bench: Bench) -> Iterator[Found]:
    """Runs a trial that allocates all memory, with a cap and without."""
    limit_bytes = bench.limit_bytes
    if limit_bytes is None:
        yield Found("out of memory", None, "there is no GPU")
        return
    reason = verdicts.reason_not_to_fill(
        bench.hardware.gpus, platform.release(), psutil.virtual_memory().total
    )
    for name, cap_bytes in (("out of memory", None), ("out of memory under a cap", limit_bytes // 2)):
        if reason and cap_bytes is None:
            yield Found(name, None, reason)
            continue
        order = bench.small_order("grows", _ENDLESS, step_bytes=limit_bytes // _STEPS_TO_FILL)
        before_bytes = devices.used_bytes()
        ran = bench.run(replace(order, limits=replace(order.limits, allocator_bytes=cap_bytes)))
        yield _judge_shortage(name, ran, cap_bytes, before_bytes)


def _judge_shortage(name: str, ran: Ran, cap_bytes: int | None, before_bytes: int) -> Found:
    held_bytes = max((record["held_bytes"] for record in ran.records), default=0)
    is_oom = ran.outcome is not None and ran.outcome.failure is Failure.OOM
    is_kept = cap_bytes is None or held_bytes <= _OVER_CAP * cap_bytes
    text = f"{ran.ending}, with {units.format_bytes(held_bytes)}"
    return _add_release(Found(name, is_oom and is_kept, text, {"held_bytes": held_bytes}), ran, before_bytes)


def _add_release(found: Found, ran: Ran, before_bytes: int) -> Found:
    """Adds to the result whether memory use returns to `before_bytes`."""
    last_s = ran.records[-1]["at_s"] if ran.records else time.monotonic()
    back_s = seconds_until_back(before_bytes, last_s)
    detail = "not given back" if back_s is None else f"given back {back_s:.1f} s after its last step"
    figures = {**found.figures, "back_s": back_s}
    is_back = found.ok and bool(ran.records) and back_s is not None
    return Found(found.name, is_back, f"{found.detail}; {detail}", figures)


def killed_trial(bench: Bench) -> Iterator[Found]:
    """Kills a trial with loader workers during a step."""
    before_bytes = devices.used_bytes()
    order = bench.small_order("holds", _ENDLESS, step_bytes=min(_HELD_BYTES, (bench.limit_bytes or 0) // 4))

    ran = bench.run_until(order, _kill_in_time)
    is_lost = ran.outcome is not None and ran.outcome.failure is Failure.LOST
    yield _add_release(Found("a killed trial gives its GPU back", is_lost, ran.ending), ran, before_bytes)


def _kill_in_time(record: Mapping[str, Any]) -> bool:
    """Kills the process that yielded the record, after some steps; returns True once it has."""
    if record["samples"] < _STEPS_BEFORE_KILL:
        return False
    os.kill(record["pid"], signal.SIGKILL)
    return True


def two_at_once(bench: Bench) -> Iterator[Found]:
    """Runs two trials with half a GPU each, and measures a process's memory outside its tensors."""
    name = "two trials share a GPU"
    if any(gpu.exclusive for gpu in bench.hardware.gpus):
        yield Found(name, None, "it is in exclusive compute mode")
        return
    orders = [bench.order(_MICRO_BATCH * _STEPS, _SETTINGS, gpus=0.5) for _ in range(2)]
    ran = bench.run_together(orders)
    peaks = [one.measurement.peak_memory_bytes or 0 for one in ran]
    detail = " and ".join(map(units.format_bytes, peaks))
    failed = [one.ending for one in ran if not one.completed]
    ok = None if any(one.outcome is None for one in ran) else not failed
    yield Found(name, ok, "; ".join(dict.fromkeys(failed)) or f"peaks {detail}", {"peak_bytes": peaks})
    yield _report_context(ran)


def _report_context(ran: list[Ran]) -> Found:
    """Reports the context memory; unknown if the driver's process ids belong to another namespace."""
    name, contexts = "what a process takes besides", [one.measurement.context_bytes for one in ran]
    if not all(contexts):
        return Found(name, None, "NVML does not tell it of these processes")
    largest = max(one or 0 for one in contexts)
    return Found(name, True, units.format_bytes(largest), {"context_bytes": contexts})
