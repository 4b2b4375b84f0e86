"""A short probe of a machine's speed: nodes with the same hardware may differ, or be slowed down."""

import subprocess
import sys
import time
import zlib
from collections.abc import Callable

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


def probe_s(*, on_gpu: bool) -> tuple[float, ...]:
    """Returns the seconds of fixed work on a CPU, and on a GPU; raises RuntimeError if the GPU fails."""
    return (_best_s(_work), *([_gpu_s()] if on_gpu else []))


def _work() -> None:
    sum(map(hash, range(50_000)))
    zlib.crc32(_BLOCK)


def _best_s(work: Callable[[], None]) -> float:
    times_s = []
    for _ in range(_TURNS):
        begun_s = time.perf_counter()
        work()
        times_s.append(time.perf_counter() - begun_s)
    return min(times_s)


def _gpu_s() -> float:
    """Returns the seconds of fixed work on a GPU, run in a process that leaves no CUDA context behind."""
    done = subprocess.run(  # noqa: S603 - this Python
        [sys.executable, "-c", _ON_GPU],
        capture_output=True,
        text=True,
        timeout=_GPU_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"its GPU does not compute: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout)
