"""Takes the records that a workload reports while it trains in a loop of its own, on another thread."""

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from autotune.inside import stop_request
from autotune.inside.inbox import Inbox
from autotune.inside.messages import Message, Reported, ScriptError

_LOOK_S = 0.1

Take = Callable[[Mapping[str, Any], float, bool], None]


class ReportError(Exception):
    """The workload reported something that cannot be a record."""


class InboxListener:
    """A context that passes each record in the inbox to `take`, with its timestamp and whether it is queued.

    Once this process is asked to stop, so are the clients. Exceptions of `take` go to `fail`, which must
    end the process, because nobody else may notice them. On exit, everything reported so far is taken.
    """

    def __init__(self, inbox: Inbox, take: Take, fail: Callable[[BaseException], None]) -> None:
        self._inbox, self._take, self._fail = inbox, take, fail
        self._is_told = self._is_over = False
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inbox.finish()
        self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        try:
            self._listen()
        except BaseException as error:  # noqa: BLE001 - nobody else would hear of it
            self._fail(error)

    def _listen(self) -> None:
        message: Message | None = None
        while message is not None or not self._is_over:
            message = self._inbox.get(_LOOK_S)
            if stop_request.is_pending() and not self._is_told:
                self._is_told = True
                self._inbox.tell_to_stop()
            if message is not None:
                self._count(message)

    def _count(self, message: Message) -> None:
        match message.content:
            case ScriptError(type, text):
                raise ReportError(f"{type}: {text}")
            case Reported(record, is_queued):
                self._take(record, message.at_s, is_queued)
