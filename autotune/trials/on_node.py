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

_TURNS = 60  # the best of them counts, so that other programs and interrupts matter little
_BLOCK = bytes(2**22)
_GPU_TIMEOUT_S = 60.0
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
    return (_cpu_s(), *([_gpu_s(gpu_program)] if gpu_program else []))


def _cpu_s() -> float:
    times_s = []
    for _ in range(_TURNS):
        begun_s = time.perf_counter()
        sum(map(hash, range(50_000)))
        zlib.crc32(_BLOCK)
        times_s.append(time.perf_counter() - begun_s)
    return min(times_s)


def _gpu_s(program: str) -> float:
    """Returns the seconds that `program` prints, run in a process that leaves no CUDA context behind."""
    done = subprocess.run(  # noqa: S603 - this Python
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=_GPU_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"its GPU does not compute: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout)


def unfit(root: str, key: str, wanted: Mapping[str, Any]) -> str:
    """Returns why this machine cannot run the trials of a session, "" if it can; may also raise an error.

    `wanted` are the required facts about code and data.
    """
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
