"""Checks the GPUs as NVML and torch report them, in forked processes, and after their loss."""

import os
from collections.abc import Iterator

from autotune.core.settings import PRECISION
from autotune.core.trial import Status
from autotune.sessions import gpus
from autotune.sessions.gpus import Look, Torch
from autotune.space.machine import explain_impossible
from autotune.system import devices
from lab.gpu_check import verdicts
from lab.gpu_check.bench import WITHOUT_GPU, Bench
from lab.gpu_check.verdicts import Found

_COMPUTED = ("fp32", "tf32", "bf16", "fp16", "fp8")  # precisions that `torch_check` has operations for
_TRIALS = 3
_MOST_TOLD = 3


def devices_agree(bench: Bench) -> Iterator[Found]:
    """Compares NVML with torch, and runs the operations of every precision."""
    devices.number_by_bus(os.environ)
    yield from judge_look(gpus.look_at(bench.hardware), bench)


def judge_look(look: Look, bench: Bench) -> Iterator[Found]:
    """Judges torch's view of the devices."""
    known, torch = bench.hardware.gpus, look.torch
    if not isinstance(torch, Torch):
        yield Found("NVML and torch agree", False, torch.what)
        return
    wrong = verdicts.differences(look.verdicts)
    detail = "; ".join(wrong) or f"{len(known)} GPUs, their memory and compute capability"
    build = {"version": torch.version, "cuda": torch.cuda, "kernels": torch.kernels}
    yield Found("NVML and torch agree", not wrong, detail, build)
    machine = gpus.machine(bench.hardware, look)
    for precision in _COMPUTED:
        failing = machine.fails.get(precision)
        reason = None if failing else explain_impossible(PRECISION, precision, machine)
        result = failing or reason or "a convolution and a matrix product are right"
        if precision == "fp8" and not (failing or reason):
            result = "a scaled matrix product is right"
        yield Found(f"{precision} computes", None if reason else not failing, result)


def forked_trials_open_cuda(bench: Bench) -> Iterator[Found]:
    """Runs several trials in a row from one fork server."""
    ran = [bench.run(bench.small_order("opens", 5)) for _ in range(_TRIALS)]
    servers = {record["server"] for one in ran for record in one.records if "server" in record}
    bad = [one.ending for one in ran if not one.completed or any(r.get("bad_fork") for r in one.records)]
    is_one = len(servers) == 1 and not bench.server.note
    told = f"{len(ran)} trials of {len(servers)} fork server" + "s" * (len(servers) != 1)
    detail = "; ".join([told, *dict.fromkeys(bad[:_MOST_TOLD]), *filter(None, [bench.server.note])])
    yield Found("forked trials open CUDA", is_one and not bad, detail)


def lost_gpu_is_no_cpu(bench: Bench) -> Iterator[Found]:
    """Runs a trial that expects a GPU and finds none."""
    ran = bench.run_elsewhere(bench.small_order("opens", 5), WITHOUT_GPU)
    is_interrupted = ran.outcome is not None and ran.outcome.status is Status.INTERRUPTED
    detail = f"{ran.ending}; {len(ran.records)} steps were measured"
    yield Found("a lost GPU is not replaced by the CPU", is_interrupted and not ran.records, detail)
