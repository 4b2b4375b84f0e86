"""A process's connection to the tuner: sends lines of JSON, and receives the request to stop."""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Mapping  # noqa: UP035 - Python 3.8 cannot subscript the ones of collections.abc

SOCKET = "AUTOTUNE_SOCKET"  # the environment variables of a trial's processes
WORKDIR = "AUTOTUNE_WORKDIR"
RUNNER = "AUTOTUNE_RUNNER"  # the process that started it
SETTINGS = "AUTOTUNE_SETTINGS"
TRIAL_SAMPLES = "AUTOTUNE_TRIAL_SAMPLES"
WHOLE = "AUTOTUNE_WHOLE"  # set in a whole training, unset in a trial
MEMORY_CAP_BYTES = "AUTOTUNE_MEMORY_CAP_BYTES"
GPUS = "AUTOTUNE_GPUS"  # number for the trial, below 1 a share of one; unset without GPUs
SEED = "AUTOTUNE_SEED"
LOGGED = "AUTOTUNE_LOGGED"  # names of the scores that a script logs into a file, as JSON
OUTPUT = "AUTOTUNE_OUTPUT"  # name of the pipe that the tuner reads
OVERRIDES = "AUTOTUNE_OVERRIDES"
VIEW = "AUTOTUNE_VIEW"  # root of the view in which the script runs, if it does
MOST_FILES = 50_000  # of a view, or of a linked directory that a script may change in it
ALWAYS_LINKED = frozenset({".git", ".venv", "venv", "env", "node_modules", "__pycache__", "site-packages"})
PROBE = "AUTOTUNE_PROBE"  # file of what a probe sees
UNIT = "AUTOTUNE_UNIT"
BEGUN = "AUTOTUNE_BEGUN"  # samples and tokens behind the checkpoint to resume from, as JSON
STEP_SAMPLES = "AUTOTUNE_STEP_SAMPLES"  # samples of a step, if its batches are not visible

IN_TRIAL = "in_trial"  # key of the overrides: what a framework needs to know in a trial
# Arguments of Transformers' Trainer by precision; None: torch decides.
TRAINER_PRECISIONS: Mapping[str, Mapping[str, bool | None]] = {
    "fp32": {"bf16": False, "fp16": False, "tf32": False},
    "torch-default": {"bf16": False, "fp16": False, "tf32": None},
    "tf32": {"bf16": False, "fp16": False, "tf32": True},
    "bf16": {"bf16": True, "fp16": False},
    "fp16": {"bf16": False, "fp16": True},
}

STOP_LINE = b'{"stop": true}\n'
LONGEST_BYTES = 16 * 2**20  # longest line
_LOOKED_UP_AT_FIRST, _LOOK_UP_EVERY_S = 10, 1.0  # ranks: at each of the first steps, then at this interval
_clock_s = time.monotonic  # bound here, because a script may patch time.monotonic


class Wire:
    """Reports to the tuner named by the environment, if there is one; raises nothing if it is gone.

    Connects on the first call; gives up for good if that fails, or if nothing is read for `patience_s`.
    """

    def __init__(self, patience_s: int = 60) -> None:
        self._patience = struct.pack("ll", patience_s, 0)
        self._socket: socket.socket | None = None
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        if self._socket is not None:
            self._socket.close()  # closes only this process's descriptor
        self._lock = threading.RLock()  # reentrant: a signal handler may interrupt a report
        self._socket = None
        self._has_failed = self._is_stopped = False

    def tell(self, message: Mapping[str, Any]) -> None:
        """Sends `message` with the current time; raises TypeError or ValueError if it is no JSON value."""
        if self._socket is None and SOCKET not in os.environ:  # os.environ is slow
            return
        self._send(_json({"at_s": _clock_s(), **message}))

    def tell_step(
        self, at_s: float, samples: int | None, tokens: int | None, figures: Mapping[str, Any]
    ) -> None:
        """Sends a step, mostly without a JSON encoder, because there may be hundreds of steps a second."""
        counts = (
            f'"samples": {"null" if samples is None else samples}, '
            f'"tokens": {"null" if tokens is None else tokens}'
        )
        measured = f', "figures": {_json(figures)}' if figures else ""
        self._send(f'{{"at_s": {at_s!r}, "step": {{{counts}{measured}}}}}')

    def _send(self, text: str) -> None:
        line = text.encode() + b"\n"
        if len(line) > LONGEST_BYTES:
            raise ValueError(f"at most {LONGEST_BYTES // 2**20} MiB can be sent, got {len(line)} bytes")
        with self._lock:
            connection = self._socket or self._opened()
            try:
                if connection is not None:
                    connection.sendall(line)
            except OSError:
                self._give_up()

    def is_stopped(self) -> bool:
        if self._is_stopped or (self._socket is None and SOCKET not in os.environ):
            return self._is_stopped
        with self._lock:
            connection = self._opened()
            try:
                if connection is not None:
                    received = connection.recv(4096, socket.MSG_DONTWAIT)
                    self._is_stopped |= STOP_LINE in received
                    if not received:
                        self._give_up()
            except BlockingIOError:
                pass  # no request
            except OSError:
                self._give_up()
        return self._is_stopped

    def _opened(self) -> socket.socket | None:
        if self._socket is None and not self._has_failed:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, self._patience)
            try:
                self._socket.connect(os.environ[SOCKET])
            except OSError:
                self._give_up()
        return self._socket

    def _give_up(self) -> None:
        self._has_failed = True
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def is_whole() -> bool:
    """Returns True in a whole training, which keeps its own cadence and end."""
    return WHOLE in os.environ


def rank() -> int:
    """Returns the rank of this process in a distributed training, 0 in any other."""
    return _asked("get_rank", "RANK", 0)


def world_size() -> int:
    """Returns the number of processes of a distributed training, 1 for any other."""
    return _asked("get_world_size", "WORLD_SIZE", 1)


class Ranks:
    """Returns rank and world size when called, cheaply enough for every step."""

    def __init__(self) -> None:
        self._ranks, self._looked_s, self._left = (0, 1), -math.inf, _LOOKED_UP_AT_FIRST

    def __call__(self) -> tuple[int, int]:
        if self._left or _clock_s() - self._looked_s >= _LOOK_UP_EVERY_S:
            self._left = max(0, self._left - 1)
            self._ranks, self._looked_s = (rank(), world_size()), _clock_s()
        return self._ranks


def _asked(question: str, variable: str, otherwise: int) -> int:
    """Returns torch.distributed's answer to `question` if it gives one, else the launcher's `variable`."""
    distributed: Any = sys.modules.get("torch.distributed")
    with suppress(ValueError, RuntimeError):
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(getattr(distributed, question)())
    with suppress(ValueError):
        return int(os.environ.get(variable, otherwise))
    return otherwise


def unwrapped(value: Any) -> Any:
    """Converts a scalar of NumPy or torch to Python; returns any other value unchanged."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


def plain(value: Any) -> Any:
    """Converts a scalar of NumPy or torch to Python; raises TypeError for any other value."""
    scalar = unwrapped(value)
    if scalar is value:
        raise TypeError(f"a record's values must be JSON's, got {type(value).__name__}")
    return scalar


_json = json.JSONEncoder(default=plain).encode  # created once: `json.dumps` would create one per call
