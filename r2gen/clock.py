"""Times the phases of a training step on the device that computes them."""

import time
from itertools import pairwise

import torch


class Stopwatch:
    """Times consecutive phases, beginning when it is created.

    On CUDA it records events in the stream: the host runs ahead of the device, so a host clock would put the
    whole step into the first phase that synchronises.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._phases: list[str] = []
        self._marks = [self._now()]

    def mark(self, phase: str) -> None:
        """Ends `phase`, which began at the previous mark; repeated phases add up."""
        self._phases.append(phase)
        self._marks.append(self._now())

    def seconds(self) -> dict[str, float]:
        """Returns the seconds of each phase; waits for the device to reach the last mark."""
        last = self._marks[-1]
        if isinstance(last, torch.cuda.Event):
            last.synchronize()
        total = dict.fromkeys(self._phases, 0.0)
        for phase, (begin, end) in zip(self._phases, pairwise(self._marks), strict=True):
            total[phase] += _between_s(begin, end)
        return total

    def _now(self) -> "torch.cuda.Event | float":
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


def _between_s(begin: "torch.cuda.Event | float", end: "torch.cuda.Event | float") -> float:
    if isinstance(begin, float) or isinstance(end, float):
        return float(end) - float(begin)  # type: ignore[arg-type]  # all marks have one type
    return float(begin.elapsed_time(end)) / 1e3
