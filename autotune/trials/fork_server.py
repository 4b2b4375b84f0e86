"""The fork server from which a process starts trials, with their imports preloaded."""

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from autotune.system import scratch
from autotune.system.cgroup import MemoryGroup
from autotune.trials import cuda, runner
from autotune.trials.order import Order

_STARTS = 5
_PRELOAD_S = 120.0  # time for its imports; a server that hangs in one never answers, and is killed


class ForkServer:
    """Forks trials from a process that has imported `preload` and holds no CUDA context."""

    def __init__(self, preload: Sequence[str]) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload([runner.__name__, *preload])
        self.note = ""  # a message for the user
        self._is_known_to_fork = False
        # Inherited by the server: torch then asks NVML whether CUDA is available, which leaves a process fit
        # to be forked from.
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"

    def start(self, order: Order, group: MemoryGroup | None) -> tuple[BaseProcess, Connection, Connection]:
        """Starts a process that runs `order` in `group`; returns it, its message pipe and its output pipe."""
        if order.limits.gpus and not self._is_known_to_fork:
            self._require_usable()
        receiver, sender = self.context.Pipe(duplex=False)
        output, printed = self.context.Pipe(duplex=False)
        process = self._fork(runner.run, (order, sender, printed, group))
        sender.close()
        printed.close()
        return process, receiver, output

    def _require_usable(self) -> None:
        """Restarts the server without the preload if the preloaded modules have initialized CUDA."""
        process = self._fork(cuda.exit_if_bad_fork, ())
        process.join(_PRELOAD_S)
        if process.exitcode == cuda.BAD_FORK:
            self.context.set_forkserver_preload([runner.__name__])
            scratch.end_fork_server()
            self.note = (
                "the workload uses CUDA when it is imported, so no trial can be forked that uses CUDA: every "
                "trial imports the workload again, which takes longer"
            )
        self._is_known_to_fork = True

    def _fork(self, target: Callable[..., None], arguments: tuple[object, ...]) -> BaseProcess:
        process = self.context.Process(target=target, args=arguments, name="trial")
        for left in reversed(range(_STARTS)):
            timer = threading.Timer(_PRELOAD_S, scratch.kill_fork_server)
            timer.daemon = True
            timer.start()
            try:
                with _main_hidden():
                    process.start()
                break
            except (EOFError, OSError):  # the server has died, or is about to
                if left == 0:
                    raise
                if left < _STARTS - 1:
                    # A preloaded module hangs, or raises something other than ImportError. Without the
                    # preload, the trial imports it itself and reports the error in its log and verdict.
                    self.context.set_forkserver_preload([runner.__name__])
                time.sleep(0.2)  # a dying server stops answering before it is seen to be dead
            finally:
                timer.cancel()
        return process


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Keeps multiprocessing from importing the main script in the child: it may be a Ray worker."""
    main = sys.modules["__main__"]
    attributes = main.__dict__
    hidden: dict[str, Any] = {n: attributes.pop(n) for n in ("__file__", "__spec__") if n in attributes}
    attributes["__spec__"] = None
    try:
        yield
    finally:
        attributes |= hidden
