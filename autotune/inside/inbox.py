"""Where a trial's processes report: a socket that no other user can reach, and a thread that serves it."""

import json
import math
import os
import queue
import selectors
import shutil
import socket
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from autotune.inside.messages import Message, Stamped, parse
from autotune.inside.site.autotune_wire import (
    GPUS,
    LONGEST_BYTES,
    MEMORY_CAP_BYTES,
    SETTINGS,
    SOCKET,
    STOP_LINE,
    TRIAL_SAMPLES,
    UNIT,
    WHOLE,
    WORKDIR,
)

__all__ = ["SITE", "Inbox", "Message", "Stamped", "of_trial"]

SITE = Path(__file__).parent / "site"  # what a script finds there is put first on its PYTHONPATH
_LONGEST_ADDRESS = 100  # bytes; Linux takes 107
_CHUNK_BYTES = 2**18
_MOST_WAITING = 200_000  # messages; then their senders wait
_SWEEP_CHUNKS = 16  # a socket holds less
_WAIT_S = 0.02
_CATCH_UP_S = 0.5
# Between two looks. A socket holds some 250 messages; one that fills up would make its script wait.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S, _MESSAGES_PER_PAUSE = 0.005, 0.25, 64
_clock_s = time.monotonic  # kept here: a workload that replaces the module's clock replaces its own alone


def of_trial(
    workdir: Path,
    settings: Mapping[str, Any],
    samples: int,
    memory_cap_bytes: int | None = None,
    unit: str = "samples",
    *,
    gpus: float = 0.0,
    whole: bool = False,
) -> dict[str, str]:
    """The variables by which a process knows its trial, of so many samples, or other `unit`, altogether.

    0 samples are as many as it trains by itself, as a `whole` training may. `memory_cap_bytes` is what its
    allocator may take of each of its `gpus`; None for whatever is free.
    """
    cap = {} if memory_cap_bytes is None else {MEMORY_CAP_BYTES: str(memory_cap_bytes)}
    return {
        WORKDIR: str(workdir.absolute()),
        SETTINGS: json.dumps(dict(settings)),
        **({TRIAL_SAMPLES: str(samples)} if samples else {}),
        UNIT: unit,
        **({WHOLE: "1"} if whole else {}),
        **cap,
        **({GPUS: str(gpus)} if gpus else {}),
    }


class Inbox:
    """A context: while it is open, its `environment` tells processes where to report.

    Nothing that they send harms it: a line that is no message, or too long, is left out.
    """

    def __init__(self) -> None:
        self._directory = _private_directory()
        self._address = str(self._directory / "s")
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._clients: dict[socket.socket, _Lines] = {}
        self._lock = threading.Lock()  # of the clients: one that connects late is told to stop, too
        self._held: list[Message] = []  # what others may have sent something before
        self._is_stopping = self._is_finished = False
        self._heard_s, self._has_heard = -math.inf, threading.Condition()
        self._wake, self._woken = socket.socketpair()
        self._selector: selectors.BaseSelector = selectors.DefaultSelector()
        self._alarm: selectors.BaseSelector = selectors.DefaultSelector()  # hears `_wake` alone
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._listen, name="inbox", daemon=True)

    def __enter__(self) -> Self:
        self._server.bind(self._address)
        self._server.listen(128)
        self._server.setblocking(False)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()
        shutil.rmtree(self._directory, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        """The variables by which a process finds this inbox."""
        return {SOCKET: self._address}

    def get(self, timeout_s: float) -> Message | None:
        """The next message, in the order of stamps, waiting at most `timeout_s`; None: there is none."""
        with suppress(queue.Empty):
            return self._messages.get(timeout=timeout_s) if timeout_s > 0 else self._messages.get_nowait()
        return None

    def heard_s(self) -> float:
        """The moment up to which all can be got that was sent; now, unless there is very much of it."""
        asked_s = _clock_s()
        with self._has_heard:
            if not self._is_finished:
                self._wake.send(b"?")
                self._has_heard.wait_for(lambda: self._heard_s >= asked_s, _CATCH_UP_S)
            return self._heard_s

    def tell_to_stop(self) -> None:
        """Tells all clients to end, including those that connect later."""
        with self._lock:
            self._is_stopping = True
            for client in self._clients:
                _tell(client)

    def finish(self) -> None:
        """Listens no more. What was sent until now can still be got; without waiting, for all has come."""
        if not self._is_finished:
            self._is_finished = True
            self._wake.close()
            self._thread.join()

    def _listen(self) -> None:
        with self._selector, self._alarm:
            self._alarm.register(self._woken, selectors.EVENT_READ)
            self._selector.register(self._server, selectors.EVENT_READ, self._accept_all)
            self._selector.register(self._woken, selectors.EVENT_READ, lambda: self._woken.recv(_CHUNK_BYTES))
            pause_s, looked_s = 0.0, _clock_s()
            while not self._is_finished:
                self._alarm.select(pause_s)
                self._hear(0 if self._held else None)
                before_s, looked_s = looked_s, _clock_s()
                self._hear(0)
                pause_s = _pause_s(pause_s, len(self._held), looked_s - before_s)
                self._publish(looked_s)
            self._sweep()
        for end in (self._server, self._woken, *self._clients):
            end.close()

    def _hear(self, timeout_s: float | None) -> None:
        """Takes what is there; a client that has come counts as well."""
        for key, _ in self._selector.select(timeout_s):
            key.data()

    def _publish(self, known_s: float) -> None:
        """Lets the messages be got that were sent up to `known_s`: nothing that was sent before is unread."""
        while self._messages.qsize() >= _MOST_WAITING and not self._is_finished:
            time.sleep(_WAIT_S)
        self._held.sort(key=lambda message: message.at_s)
        count = bisect_right(self._held, known_s, key=lambda message: message.at_s)
        for message in self._held[:count]:
            self._messages.put(message)
        del self._held[:count]
        with self._has_heard:
            self._heard_s = known_s
            self._has_heard.notify_all()

    def _sweep(self) -> None:
        """Takes what has been sent until now, and no more from clients that keep sending."""
        self._accept_all()
        for client in list(self._clients):
            for _ in range(_SWEEP_CHUNKS):
                if not self._read(client):
                    break
        self._publish(math.inf)

    def _accept_all(self) -> None:
        while self._accept():
            pass

    def _accept(self) -> bool:
        """Whether another client has come."""
        try:
            client, _ = self._server.accept()
        except BlockingIOError:
            return False
        except OSError:  # out of descriptors, say: it waits in the queue
            time.sleep(_WAIT_S)
            return False
        client.setblocking(False)
        self._selector.register(client, selectors.EVENT_READ, lambda: self._read(client))
        with self._lock:
            self._clients[client] = _Lines()
            if self._is_stopping:
                _tell(client)
        self._read(client)
        return True

    def _read(self, client: socket.socket) -> bool:
        """Whether `client` may have said more than was read now."""
        try:
            chunk = client.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # it was killed, and its socket reset
            chunk = b""
        said, now_s = map(parse, self._clients[client].of(chunk)), _clock_s()
        self._held += [_until(now_s, message) for message in said if message is not None]
        if not chunk:
            self._forget(client)
        return bool(chunk)

    def _forget(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        with self._lock:
            del self._clients[client]
        client.close()


class _Lines:
    """Puts one client's lines together, in linear time; what is longer than a line may be is left out."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self._bytes = 0

    def of(self, chunk: bytes) -> list[bytes]:
        """The lines that are whole with `chunk`."""
        *ends, rest = chunk.split(b"\n")
        lines = []
        for end in ends:
            if self._bytes + len(end) <= LONGEST_BYTES:
                lines.append(b"".join([*self._begun, end]))
            self._begun, self._bytes = [], 0
        self._bytes += len(rest)
        if self._bytes <= LONGEST_BYTES:
            self._begun.append(rest)
        else:
            self._begun.clear()
        return lines


def _pause_s(before_s: float, messages: int, passed_s: float) -> float:
    """How long senders are left alone after so many `messages` in the time that has passed.

    Being woken by every one of them would take time from the training.
    """
    if not messages or passed_s > 2 * _LONGEST_PAUSE_S:  # many may follow one another now
        return _SHORTEST_PAUSE_S
    as_many_s = _MESSAGES_PER_PAUSE * passed_s / messages
    return min(max(2 * before_s, _SHORTEST_PAUSE_S), as_many_s, _LONGEST_PAUSE_S)


def _until(now_s: float, message: Message) -> Message:
    """The message, which cannot have been sent later than it is read."""
    return message if message.at_s <= now_s else replace(message, at_s=now_s)


def _tell(client: socket.socket) -> None:
    with suppress(OSError):  # it has gone, or has not read what it was told before
        client.send(STOP_LINE, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def _private_directory() -> Path:
    """A directory that no other user can enter, and whose name leaves room for a socket's."""
    directory = Path(tempfile.mkdtemp(prefix="inbox_"))
    if len(os.fsencode(directory)) > _LONGEST_ADDRESS:
        directory.rmdir()
        directory = Path(tempfile.mkdtemp(prefix="inbox_", dir="/tmp"))
    return directory
