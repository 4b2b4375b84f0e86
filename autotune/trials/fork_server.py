"""Where the trials of a process are forked from, with all imported that they need."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from autotune.system.memory_group import MemoryGroup
from autotune.trials import cuda, runner
from autotune.trials.order import Order

_STARTS = 5
_RESTART_S = 0.2  # a dying server is deaf before it can be seen to be dead
_NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
_WITHOUT_PRELOAD = (
    "the workload uses CUDA when it is imported, so no trial can be forked that uses CUDA: every trial "
    "imports the workload again, which takes longer"
)
_PRELOAD_S = 120.0  # for its imports; one that hangs in them never answers


class ForkServer:
    """Where children are forked from: a process that has imported `preload` and holds no CUDA context.

    It is multiprocessing's own, one for each process that uses it, and ends with that process. `note` is what
    to say of it, once it is known.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload([runner.__name__, *preload])
        self.note = ""
        self._is_known_to_fork = False

    def start(self, order: Order, group: MemoryGroup | None) -> tuple[BaseProcess, Connection, Connection]:
        """A process that runs what is ordered in `group`, the pipe in which it reports, and its output."""
        if order.gpus and not self._is_known_to_fork:
            self._require_usable()
        receiver, sender = self.context.Pipe(duplex=False)
        output, printed = self.context.Pipe(duplex=False)
        arguments = (order, sender, printed, group)
        process = self._forked(runner.run, arguments)
        sender.close()
        printed.close()
        return process, receiver, output

    def _require_usable(self) -> None:
        """Starts the server again without the preload where what was preloaded has asked for CUDA.

        A question whether it is there does no harm: it is answered by NVML. But a tensor on the GPU does.
        """
        process = self._forked(cuda.tell_of_bad_fork, ())
        process.join(_PRELOAD_S)
        if process.exitcode == cuda.BAD_FORK:
            self.context.set_forkserver_preload([runner.__name__])
            forkserver._forkserver._stop()  # type: ignore[attr-defined]  # nothing else can
            self.note = _WITHOUT_PRELOAD
        self._is_known_to_fork = True

    def _forked(self, target: Callable[..., None], arguments: tuple[object, ...]) -> BaseProcess:
        process = self.context.Process(target=target, args=arguments, name="trial")
        for left in reversed(range(_STARTS)):
            try:
                with _main_hidden(), _asking_nvml(), _server_killed_after(_PRELOAD_S):
                    process.start()
                break
            except (EOFError, OSError):  # the server has died, or is about to
                if left == 0:
                    raise
                if left < _STARTS - 1:
                    # It dies of a module that raises something other than ImportError, or hangs in one.
                    # Without preloading it, the trial imports it itself, and its log and its verdict tell
                    # what is wrong.
                    self.context.set_forkserver_preload([runner.__name__])
                time.sleep(_RESTART_S)
        return process


@contextmanager
def _asking_nvml() -> Iterator[None]:
    """Lets a process started now ask whether CUDA is there and still be fit to fork from afterwards."""
    before = os.environ.get(_NVML_CHECK)
    os.environ[_NVML_CHECK] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_NVML_CHECK]
        else:
            os.environ[_NVML_CHECK] = before


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


@contextmanager
def _server_killed_after(seconds: float) -> Iterator[None]:
    """Kills the fork server if the block takes longer."""

    def kill() -> None:
        if pid := getattr(forkserver._forkserver, "_forkserver_pid", None):  # it is known nowhere else
            os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
