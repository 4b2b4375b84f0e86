"""The inbox of a trial: a private socket to which its processes report, and a thread that reads it."""

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
from functools import partial
from pathlib import Path
from typing import Any, Self

from autotune.inside.messages import Message, parse
from autotune.inside.site import autotune_wire as wire

SITE = Path(__file__).parent / "site"  # put first on a script's PYTHONPATH
_LONGEST_ADDRESS = 100  # bytes; Linux takes 107
_CHUNK_BYTES = 2**18
_MOST_WAITING = 200_000  # messages; beyond that their senders block
_SWEEP_CHUNKS = 16  # together larger than the buffer of a socket
_WAIT_S = 0.02
_CATCH_UP_S = 0.5
# Pauses between reads. A socket buffers some 250 messages; a full one would block its script.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S, _MESSAGES_PER_PAUSE = 0.005, 0.25, 64
_clock_s = time.monotonic  # bound here, because a workload may patch time.monotonic


def trial_environment(
    workdir: Path,
    settings: Mapping[str, Any],
    samples: int,  # length of the trial in `unit`; 0: it ends by itself, as a `whole` training may
    memory_cap_bytes: int | None = None,  # the allocator's cap on each of its `gpus`
    unit: str = "samples",
    *,
    gpus: float = 0.0,
    whole: bool = False,
) -> dict[str, str]:
    """Returns the environment variables from which a process learns about its trial."""
    variables = {
        wire.WORKDIR: workdir.absolute(),
        wire.SETTINGS: json.dumps(dict(settings)),
        wire.TRIAL_SAMPLES: samples or None,
        wire.UNIT: unit,
        wire.WHOLE: 1 if whole else None,
        wire.MEMORY_CAP_BYTES: memory_cap_bytes,
        wire.GPUS: gpus or None,
    }
    return {name: str(value) for name, value in variables.items() if value is not None}


class Inbox:
    """Receives reports at the address in `environment`; drops invalid and overlong lines."""

    def __init__(self) -> None:
        self._directory = _private_directory()
        self._address = str(self._directory / "s")
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._clients: dict[socket.socket, LineReader] = {}
        self._lock = threading.Lock()  # guards the clients, so that a late one is told to stop too
        self._held: list[Message] = []  # waiting, because an earlier message may be unread
        self._is_stopping = self._is_finished = False
        self._heard_s, self._has_heard = -math.inf, threading.Condition()
        self._wake, self._woken = socket.socketpair()
        self._selector: selectors.BaseSelector = selectors.DefaultSelector()
        self._alarm: selectors.BaseSelector = selectors.DefaultSelector()  # for `_wake` only
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._listen, name="inbox", daemon=True)

    def __enter__(self) -> Self:
        self._server.bind(self._address)
        self._server.listen(128)
        self._server.setblocking(False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()
        shutil.rmtree(self._directory, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        return {wire.SOCKET: self._address}

    def get(self, timeout_s: float) -> Message | None:
        """Returns the next message by timestamp, waiting up to `timeout_s`; None if there is none."""
        with suppress(queue.Empty):
            return self._messages.get(timeout=timeout_s) if timeout_s > 0 else self._messages.get_nowait()
        return None

    def heard_s(self) -> float:
        """Returns the time up to which all messages can be read: now, unless there is a large backlog."""
        asked_s = _clock_s()
        with self._has_heard:
            if not self._is_finished:
                self._wake.send(b"?")
                self._has_heard.wait_for(lambda: self._heard_s >= asked_s, _CATCH_UP_S)
            return self._heard_s

    def tell_to_stop(self) -> None:
        """Tells all clients to stop, including those that connect later."""
        with self._lock:
            self._is_stopping = True
            for client in self._clients:
                _tell(client)

    def finish(self) -> None:
        """Stops listening; messages sent until now can still be read, without waiting."""
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
            # What was sent until now, and no more than that from clients that keep sending.
            self._accept_all()
            for client in list(self._clients):
                for _ in range(_SWEEP_CHUNKS):
                    if not self._read(client):
                        break
            self._publish(math.inf)
        for end in (self._server, self._woken, *self._clients):
            end.close()

    def _hear(self, timeout_s: float | None) -> None:
        for key, _ in self._selector.select(timeout_s):
            key.data()

    def _publish(self, known_s: float) -> None:
        """Releases the messages sent up to `known_s`, all of which have been read."""
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

    def _accept_all(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except BlockingIOError:
                return
            except OSError:  # out of descriptors, say; the client stays in the queue
                time.sleep(_WAIT_S)
                return
            client.setblocking(False)
            self._selector.register(client, selectors.EVENT_READ, partial(self._read, client))
            with self._lock:
                self._clients[client] = LineReader(wire.LONGEST_BYTES)
                if self._is_stopping:
                    _tell(client)
            self._read(client)

    def _read(self, client: socket.socket) -> bool:
        """Reads from `client`; returns True if there may be more."""
        try:
            chunk = client.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # the client was killed
            chunk = b""
        messages, now_s = map(parse, self._clients[client].add(chunk)), _clock_s()
        self._held += [one._replace(at_s=min(one.at_s, now_s)) for one in messages if one is not None]
        if not chunk:
            self._selector.unregister(client)
            with self._lock:
                del self._clients[client]
            client.close()
        return bool(chunk)


class LineReader:
    """Assembles the lines of one sender in linear time; drops those longer than `longest_bytes`."""

    def __init__(self, longest_bytes: float = math.inf) -> None:
        self._longest_bytes = longest_bytes
        self._begun: list[bytes] = []
        self._bytes = 0

    def add(self, chunk: bytes) -> list[bytes]:
        """Returns the lines that `chunk` completes."""
        *ends, rest = chunk.split(b"\n")
        lines = []
        for end in ends:
            if self._bytes + len(end) <= self._longest_bytes:
                lines.append(b"".join([*self._begun, end]))
            self._begun, self._bytes = [], 0
        self._bytes += len(rest)
        if self._bytes <= self._longest_bytes:
            self._begun.append(rest)
        else:
            self._begun.clear()
        return lines


def _pause_s(before_s: float, messages: int, passed_s: float) -> float:
    """Returns how long to let messages gather: waking up for every message would slow the training."""
    if not messages or passed_s > 2 * _LONGEST_PAUSE_S:  # a burst may begin
        return _SHORTEST_PAUSE_S
    as_many_s = _MESSAGES_PER_PAUSE * passed_s / messages
    return min(max(2 * before_s, _SHORTEST_PAUSE_S), as_many_s, _LONGEST_PAUSE_S)


def _tell(client: socket.socket) -> None:
    with suppress(OSError):  # gone, or its buffer is full
        client.send(wire.STOP_LINE, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def _private_directory() -> Path:
    """Creates a directory that only this user can enter, with a name short enough for a socket in it."""
    directory = Path(tempfile.mkdtemp(prefix="inbox_"))
    if len(os.fsencode(directory)) > _LONGEST_ADDRESS:
        directory.rmdir()
        directory = Path(tempfile.mkdtemp(prefix="inbox_", dir="/tmp"))
    return directory
