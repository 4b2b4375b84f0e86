"""Checks that a script on the command line is seen, capped, and counted over its ranks."""

import sys
from collections.abc import Iterator
from dataclasses import replace

from autotune.core import units
from autotune.core.trial import Failure
from autotune.trials.order import Order
from lab.gpu_check import script
from lab.gpu_check.bench import Bench
from lab.gpu_check.verdicts import Found

_BATCH = 64
_STEPS = 8 * script.BATCHES
_CAP_BYTES = 2**28
_RANKS = 2


def plain_script(bench: Bench) -> Iterator[Found]:
    """Trains a script that knows nothing of the tuner, and one that holds more than its cap."""
    run = [sys.executable, script.__file__]
    yield _judge("a script is measured on the GPU", bench, bench.script_order(run, _BATCH, _STEPS))
    too_much = [*run, str(2 * _CAP_BYTES // 2**20)]
    order = bench.script_order(too_much[:2], _BATCH, _STEPS, after=too_much[2:])
    ran = bench.run(replace(order, limits=replace(order.limits, allocator_bytes=_CAP_BYTES)))
    is_oom = None if ran.outcome is None else ran.outcome.failure is Failure.OOM
    yield Found("a script runs out of memory under a cap", is_oom, ran.ending)


def two_ranks(bench: Bench) -> Iterator[Found]:
    """Trains a script on two GPUs at once, started by torchrun."""
    name = "a script's two ranks count as one training"
    if len(bench.hardware.gpus) < _RANKS:
        yield Found(name, None, "there is one GPU")
        return
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={_RANKS}"]
    order = bench.script_order([*torchrun, script.__file__], _BATCH, _STEPS)
    order = replace(order, limits=replace(order.limits, gpus=float(_RANKS)))
    yield _judge(name, bench, order, _RANKS)


def _judge(name: str, bench: Bench, order: Order, ranks: int = 1) -> Found:
    """Runs a script; judges the count of a step's samples, and whether the peak is the GPU's."""
    ran = bench.run(order)
    steps = [record["samples"] for record in ran.records if "bleu_4" not in record]
    if not ran.completed or len(steps) < 2:
        return Found(name, None if ran.outcome is None else False, ran.ending)
    step, peak_bytes = steps[1] - steps[0], ran.measurement.peak_memory_bytes or 0
    is_on_device = bench.device == "cpu" or ran.measurement.peak_reserved_bytes is not None
    speed = ran.measurement.throughput
    detail = f"{step} samples a step, peak {units.format_bytes(peak_bytes)}" + (
        f", {speed.samples_per_s:,.0f} samples/s" if speed else ""
    )
    return Found(name, step == ranks * _BATCH and is_on_device, detail, {"step_samples": step})
