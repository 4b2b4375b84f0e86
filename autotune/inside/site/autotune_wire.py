"""This process's connection to the tuner: lines of JSON out, and whether to stop back."""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import sys
import threading
import time
from typing import Any, Mapping  # noqa: UP035 - Python 3.8 cannot subscript the ones of collections.abc

SOCKET = "AUTOTUNE_SOCKET"  # the variables of the environment that a trial's processes have
WORKDIR = "AUTOTUNE_WORKDIR"
SETTINGS = "AUTOTUNE_SETTINGS"
TRIAL_SAMPLES = "AUTOTUNE_TRIAL_SAMPLES"
WHOLE = "AUTOTUNE_WHOLE"  # set where it is no trial, but the whole training
MEMORY_CAP_BYTES = "AUTOTUNE_MEMORY_CAP_BYTES"
GPUS = "AUTOTUNE_GPUS"  # that a trial has, a part of one below 1; not set if it has none
SEED = "AUTOTUNE_SEED"
LOGGED = "AUTOTUNE_LOGGED"  # the names of scores that a script logs into a file, as JSON
OUTPUT = "AUTOTUNE_OUTPUT"  # the pipe that the tuner reads, by its name
OVERRIDES = "AUTOTUNE_OVERRIDES"
UNIT = "AUTOTUNE_UNIT"
BEGUN = "AUTOTUNE_BEGUN"  # samples and tokens seen by the checkpoint that a trial resumes from, as JSON
STEP_SAMPLES = "AUTOTUNE_STEP_SAMPLES"  # of a step whose batches are not seen

IN_TRIAL = "in_trial"  # of the overrides: what a framework needs to know in a trial, and nothing else takes

STOP_LINE = b'{"stop": true}\n'
LONGEST_BYTES = 16 * 2**20  # of a line
_LOOKED_UP_AT_FIRST, _LOOK_UP_EVERY_S = 10, 1.0  # of the ranks: in steps, and later
_SEND_S = 60  # that a tuner may take no byte, before it is given up
_clock_s = time.monotonic  # kept here: a script that replaces the module's clock replaces its own alone


class Wire:
    """Reports to the tuner, where the environment names one. It raises nothing where the tuner is gone.

    It is opened with the first call, and not again once it has failed. A forked child opens its own.
    """

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may report while its thread does
        self._socket: socket.socket | None = None
        self._has_failed = self._is_stopped = False
        self._pid = os.getpid()

    def _begin_anew(self) -> None:
        if self._socket is not None:
            self._socket.close()  # this process's descriptor alone
        self._begin()

    def tell(self, message: Mapping[str, Any], at_s: float | None = None, of: int | None = None) -> None:
        """Sends `message`, stamped now or `at_s`; raises TypeError or ValueError where it is not JSON's.

        `of` is this process's rank, where that is known.
        """
        if self._socket is None and SOCKET not in os.environ:  # to look there takes a while
            return
        at_s, of = _clock_s() if at_s is None else at_s, rank() if of is None else of
        self._send(_json({"at_s": at_s, "pid": self._pid, "rank": of, **message}))

    def tell_step(
        self, at_s: float, of: int, samples: int | None, tokens: int | None, figures: Mapping[str, Any]
    ) -> None:
        """Sends a step's message, without most of what an encoder does: there may be hundreds a second."""
        seen = (
            f'"samples": {"null" if samples is None else samples}, '
            f'"tokens": {"null" if tokens is None else tokens}'
        )
        measured = f', "figures": {_json(figures)}' if figures else ""
        self._send(f'{{"at_s": {at_s!r}, "pid": {self._pid}, "rank": {of}, "step": {{{seen}{measured}}}}}')

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
        """Whether the tuner has asked to stop."""
        if self._is_stopped or (self._socket is None and SOCKET not in os.environ):
            return self._is_stopped
        with self._lock:
            connection = self._opened()
            try:
                if connection is not None and not self._take(connection.recv(4096, socket.MSG_DONTWAIT)):
                    self._give_up()
            except BlockingIOError:
                pass  # nothing has been said
            except OSError:
                self._give_up()
        return self._is_stopped

    def _take(self, said: bytes) -> bool:
        self._is_stopped |= STOP_LINE in said
        return bool(said)

    def _opened(self) -> socket.socket | None:
        if self._socket is None and not self._has_failed:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_S, 0))
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
    """Whether this is a whole training, which keeps its own cadence and reaches its own end."""
    return WHOLE in os.environ


def rank() -> int:
    """This process's among those of a distributed training, 0 where it is none."""
    return _number_of("RANK", 0, "get_rank", _distributed())


def world_size() -> int:
    """The number of processes of a distributed training, 1 where it is none."""
    return _number_of("WORLD_SIZE", 1, "get_world_size", _distributed())


class Ranks:
    """A process's rank and the world's size, which can be asked for at every step.

    They are looked up once a second, and at each of the first steps.
    """

    def __init__(self) -> None:
        self._found, self._looked_s, self._left = (0, 1), -math.inf, _LOOKED_UP_AT_FIRST

    def __call__(self) -> tuple[int, int]:
        if self._left or _clock_s() - self._looked_s >= _LOOK_UP_EVERY_S:
            self._left = max(0, self._left - 1)
            self._found, self._looked_s = (rank(), world_size()), _clock_s()
        return self._found


def _distributed() -> Any:
    """torch.distributed where it is in use, else None."""
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        is_used = distributed is not None and distributed.is_available() and distributed.is_initialized()
    except (ValueError, RuntimeError):
        return None
    return distributed if is_used else None


def _number_of(variable: str, otherwise: int, question: str, distributed: Any) -> int:
    """What torch.distributed says where it is in use, else what its launcher has put into the environment."""
    try:
        if distributed is not None:
            return int(getattr(distributed, question)())
        return int(os.environ.get(variable, otherwise))
    except (ValueError, RuntimeError):
        return otherwise


def unwrapped(value: Any) -> Any:
    """NumPy's and torch's scalars as Python's, and any other value as it is."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


def plain(value: Any) -> Any:
    """NumPy's and torch's scalars as Python's; raises TypeError for any other value."""
    found = unwrapped(value)
    if found is value:
        raise TypeError(f"a record's values must be JSON's, got {type(value).__name__}")
    return found


_json = json.JSONEncoder(default=plain).encode  # made once: each call of `json.dumps` would make one
