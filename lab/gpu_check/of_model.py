"""Checks that the model trains in every precision, with and without CUDA graphs and checkpointing."""

import itertools
import time
from collections.abc import Iterator

from autotune.core import units
from autotune.core.settings import CHECKPOINTING, COMPILE, MICRO_BATCH, PRECISION, PRECISIONS, Setting
from autotune.space.machine import explain_unsupported
from autotune.workloads import registry
from lab.gpu_check import verdicts
from lab.gpu_check.bench import Bench, Ran
from lab.gpu_check.verdicts import Found

_MICRO_BATCH, _STEPS, _EVALUATED = 8, 30, 16
_REFERENCE: dict[str, Setting] = {PRECISION: "fp32", COMPILE: "off", CHECKPOINTING: False}
_OVER = "the time is over"


def combinations() -> list[dict[str, Setting]]:
    """Returns the settings of the runs in order: plain fp32 as the reference, then what spaces propose."""
    first: list[dict[str, Setting]] = [_REFERENCE, {**_REFERENCE, PRECISION: "bf16", COMPILE: "cuda-graphs"}]
    modes = itertools.product(("off", "cuda-graphs"), (False, True), PRECISIONS)
    every: list[dict[str, Setting]] = [
        {PRECISION: name, COMPILE: mode, CHECKPOINTING: recomputes} for mode, recomputes, name in modes
    ]
    return [*first, *(one for one in every if one not in first)]


def every_combination(bench: Bench) -> Iterator[Found]:
    """Trains every combination for some steps and an evaluation, as a trial.

    Skips those that would not finish in time.
    """
    reference: float | None = None
    longest_s, known = 0.0, registry.known_settings(registry.BUILTIN)
    for changed in combinations():
        name = _name(changed)
        whys = (
            explain_unsupported(setting, value, bench.machine, known) for setting, value in changed.items()
        )
        if reason := next(filter(None, whys), None):
            yield Found(name, None, reason)
            continue
        if bench.left_s <= longest_s:
            yield Found(name, None, _OVER)
            continue
        begun_s = time.monotonic()
        settings = {MICRO_BATCH: _MICRO_BATCH, "eval_studies": _EVALUATED, **changed}
        order = bench.order(_MICRO_BATCH * _STEPS, settings)
        ran = bench.run(order)
        longest_s = max(longest_s, time.monotonic() - begun_s)
        loss = verdicts.last_loss(ran.records, order.ends.samples)
        if changed == _REFERENCE and ran.completed:
            reference = loss
        yield _found(name, ran, loss, reference, str(changed[PRECISION]))


def _name(changed: dict[str, Setting]) -> str:
    parts = [str(changed[PRECISION])]
    parts += [str(changed[COMPILE])] if changed[COMPILE] != "off" else []
    return ", ".join([*parts, *(["checkpointing"] if changed[CHECKPOINTING] else [])])


def _found(name: str, ran: Ran, loss: float | None, reference: float | None, precision: str) -> Found:
    if ran.outcome is None:
        return Found(name, None, _OVER)
    if not ran.completed or loss is None:
        return Found(name, False, ran.ending)
    shown, per_s = ran.measurement, ran.measurement.throughput
    figures = {
        "loss": units.number(loss),
        "val_loss": shown.scores.get("val_loss"),
        "samples_per_s": per_s and per_s.samples_per_s,
        "peak_allocated_bytes": shown.peak_memory_bytes,
        "peak_reserved_bytes": shown.peak_reserved_bytes,
        "process_bytes": ran.process_bytes,
    }
    if reference is None:
        return Found(name, None, f"loss {loss:.3f}, and none of fp32 by itself to hold it against", figures)
    peaks = [shown.peak_memory_bytes, shown.peak_reserved_bytes, ran.process_bytes]
    sizes = [units.format_bytes(one) if one else "-" for one in peaks]
    told = f"loss {loss:.3f} ({loss / reference - 1:+.1%}), allocated, reserved, of the process: "
    return Found(name, verdicts.is_near(loss, reference, precision), told + ", ".join(sizes), figures)
