"""One trial's workload in a process of its own: started, listened to, stopped, and its end explained."""

import json
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from autotune import failures, runner
from autotune.runner import Job
from autotune.trial import Failure, Outcome

__all__ = ["Child", "Event", "ForkServer", "Job"]

_START_TIMEOUT_S = 600.0
_SHORTEST_STALL_S = 300.0
_STALL_STEPS = 10
_STEPS_REMEMBERED = 100
_STACK_WAIT_S = 1.0
_LAST_WORDS_BYTES = 4096


@dataclass(frozen=True)
class Event:
    """A record, and when the workload yielded it by its own process's monotonic clock."""

    at_s: float
    record: dict[str, Any]


class ForkServer:
    """Where children are forked from: a process that has imported `preload` and holds no CUDA context.

    It is multiprocessing's own, one for each process that uses it, and ends with that process.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["autotune.runner", *preload])

    def start(self, job: Job) -> tuple[BaseProcess, Any]:
        """A process that runs `job`, and the pipe in which it reports."""
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(target=runner.run, args=(job, sender), name="trial")
        with _main_hidden():
            process.start()
        sender.close()
        return process, receiver


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Keeps multiprocessing from importing the main script again in the child: it may be Ray's worker."""
    main = sys.modules["__main__"]
    attributes = main.__dict__
    hidden: dict[str, Any] = {n: attributes.pop(n) for n in ("__file__", "__spec__") if n in attributes}
    attributes["__spec__"] = None
    try:
        yield
    finally:
        attributes |= hidden


class Child:
    """A workload that runs, or has run. `poll` it until it has a `verdict`, or `stop` it."""

    def __init__(self, job: Job, server: ForkServer) -> None:
        self.verdict: Outcome | None = None
        self._job = job
        self._kernel_kills = _kernel_kills()
        self._process, self._pipe = server.start(job)
        self._heard_s = time.monotonic()
        self._gaps_s: deque[float] = deque(maxlen=_STEPS_REMEMBERED)

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def poll(self, timeout_s: float) -> list[Event]:
        """The records that have come, waiting for the first one at most `timeout_s`."""
        if self.verdict is not None:
            return []
        wait([self._pipe, self._process.sentinel], timeout_s)
        events = self._received()
        if self.verdict is None and not events:
            self._look_after()
        return events

    def _received(self) -> list[Event]:
        events = []
        with suppress(EOFError, OSError):  # it died, perhaps in the middle of a message
            while self.verdict is None and self._pipe.poll(0):
                message = json.loads(self._pipe.recv_bytes())
                if "outcome" in message:
                    self.verdict = Outcome.from_dict(message["outcome"])
                else:
                    events.append(Event(message["at_s"], message["record"]))
        if events:
            now_s = time.monotonic()
            self._gaps_s.append((now_s - self._heard_s) / len(events))
            self._heard_s = now_s
        return events

    def _look_after(self) -> None:
        """Explains a death without a verdict, and ends a silence that has lasted too long."""
        if not self._process.is_alive():
            kernel_killed = _kernel_kills() > self._kernel_kills
            code = self._process.exitcode or 0
            self.verdict = failures.of_exit(code, self._last_words(), kernel_killed=kernel_killed)
            return
        silent_s, limit_s = time.monotonic() - self._heard_s, self._stall_limit_s()
        if silent_s > limit_s:
            self._signal(runner.STACK_SIGNAL)
            self._process.join(_STACK_WAIT_S)
            self.kill()
            self.verdict = failures.failed(
                Failure.TIMEOUT, f"no record for {silent_s:.0f} s; its stack is in {self._job.log}"
            )

    def _stall_limit_s(self) -> float:
        if self._job.stall_timeout_s is not None:
            return self._job.stall_timeout_s
        if not self._gaps_s:
            return _START_TIMEOUT_S
        return max(_SHORTEST_STALL_S, _STALL_STEPS * statistics.median(self._gaps_s))

    def _last_words(self) -> str:
        try:
            with self._job.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def stop(self, grace_s: float) -> None:
        """Lets the workload close after its next record, and kills what is left after `grace_s`."""
        deadline = time.monotonic() + grace_s
        self._signal(signal.SIGTERM, group=False)
        while self.verdict is None and (left_s := deadline - time.monotonic()) > 0:
            self.poll(left_s)
        self._process.join(max(0.0, deadline - time.monotonic()))
        self.kill()

    def kill(self) -> None:
        """Ends the process and all that it started, at once."""
        self._signal(signal.SIGKILL)
        self._process.join()
        self._pipe.close()

    def _signal(self, number: signal.Signals, *, group: bool = True) -> None:
        with suppress(ProcessLookupError, PermissionError):
            (os.killpg if group else os.kill)(self.pid, number)


def _kernel_kills() -> int:
    """How many processes the kernel has killed for memory, on this machine or in this container."""
    files = (Path("/proc/vmstat"), Path("/sys/fs/cgroup/memory.events"))
    return sum(_oom_kills(file) for file in files)


def _oom_kills(file: Path) -> int:
    with suppress(OSError):
        for line in file.read_text(encoding="ascii", errors="replace").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0
