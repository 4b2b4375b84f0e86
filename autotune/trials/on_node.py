"""A cluster node's answers: its hardware, and whether it can run the trials of a session."""

import importlib
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.storage import provenance
from autotune.storage.store import StoredSession
from autotune.system import telemetry
from autotune.system.telemetry import Hardware
from autotune.workloads import registry

_ON_GPU = """
import time, torch
matrix, best, end = torch.ones(4096, 4096, device="cuda"), float("inf"), time.perf_counter() + 1
while time.perf_counter() < end:
    begun = time.perf_counter()
    (matrix @ matrix)[0, 0].item()
    best = min(best, time.perf_counter() - begun)
print(best)
"""


def describe(*, on_gpu: bool) -> tuple[Hardware, tuple[float, ...]]:
    """Returns the hardware of this machine, without its GPUs unless `on_gpu`, and how fast it is."""
    found = telemetry.hardware()
    if not on_gpu:
        found = replace(found, gpus=(), refused=())
    return found, probe_s(_ON_GPU if found.gpus else None)


def probe_s(gpu_program: str | None) -> tuple[float, ...]:
    """Returns the seconds of fixed work on a CPU and of `gpu_program`; raises RuntimeError if that fails."""
    times_s, block = [], bytes(2**22)
    for _ in range(60):  # the best turn counts, so that other programs and interrupts matter little
        begun_s = time.perf_counter()
        sum(map(hash, range(50_000)))
        zlib.crc32(block)
        times_s.append(time.perf_counter() - begun_s)
    if gpu_program is None:
        return (min(times_s),)
    command = [sys.executable, "-c", gpu_program]  # a process of its own leaves no CUDA context behind
    done = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"its GPU does not compute: {done.stderr.strip().splitlines()[-1]}")
    return min(times_s), float(done.stdout)


def unfit(root: str, key: str, wanted: Mapping[str, Any]) -> str:
    """Returns why this machine cannot run the trials of a session, "" if it can; may also raise an error."""
    session = StoredSession.open(Path(root))
    if session.key != key:
        return f"there is another session in {root}"
    space = session.space()
    workload = registry.load(space.workload)
    for module in workload.preload:
        importlib.import_module(module)
    here = provenance.code_facts(space, workload)
    with tempfile.TemporaryFile(dir=root):  # or raises
        pass
    unlike = (name for name in wanted if here[name] != wanted[name])
    return next((f"it has {name} {here[name]}, not {wanted[name]}" for name in unlike), "")
