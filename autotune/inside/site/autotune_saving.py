"""Notes what each file has seen that a script saves with `torch.save`, and when its state was taken."""

from __future__ import annotations

import functools
import os
import threading
from typing import Any, Callable  # noqa: UP035 - for Python 3.8

import autotune_wire
from autotune_saves import Saved, digest_of, file_of, note


class Saving:
    """Notes what each file of `torch.save` has seen, of a training that has seen `total` up to now."""

    def __init__(self, total: Any) -> None:
        self._total = total
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._thread: int | None = None  # the one that trains in this process
        self._snapshots: list[Saved] = []  # what it had seen when it took an optimizer's state; not saved yet

    def trains(self) -> None:
        """The running thread trains."""
        self._thread = threading.get_ident()

    def around_state(self, state_dict: Callable[..., Any]) -> Callable[..., Any]:
        """Returns an optimizer's `state_dict`, whose result another thread may save while this one trains."""

        @functools.wraps(state_dict)
        def taken(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == self._thread:
                self._snapshots = [*self._snapshots[-1:], self._now()]  # more than one is as good as many
            return state_dict(*args, **kwargs)

        return taken

    def around_save(self, save: Callable[..., Any]) -> Callable[..., Any]:
        """Returns torch's `save`, which notes what had been seen before it began to write."""

        @functools.wraps(save)
        def saved(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
            seen = self._seen()
            save(obj, f, *args, **kwargs)
            if seen is not None:
                record(f, seen)

        return saved

    def _seen(self) -> Saved | None:
        """Returns what a file that this thread saves has seen; None if that is not known.

        In a thread or process that only saves it is known by the one state that was taken and not saved yet.
        """
        snapshots, self._snapshots = self._snapshots, []
        if self._thread == threading.get_ident():
            return self._now()
        return snapshots[0] if len(snapshots) == 1 else None

    def _now(self) -> Saved:
        return Saved(self._total.samples, self._total.tokens)


def record(target: Any, seen: Saved) -> None:
    """Notes what is in a file, a path or open, so that the trial of this process can resume from it."""
    try:
        if digest := digest_of(target):
            note(file_of(os.environ[autotune_wire.WORKDIR]), digest, seen)
    except Exception:  # noqa: BLE001, S110 - a full disk, a file of some kind: its trial begins anew then
        pass
