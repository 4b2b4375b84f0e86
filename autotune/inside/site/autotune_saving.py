"""Notes the samples behind each file that a script saves with `torch.save`."""

from __future__ import annotations

import os
import threading
from typing import Any

import autotune_wire
from autotune_saves import Counts, digest_of, note, notes_file


class Saving:
    """Notes the samples behind each file of `torch.save`; `total` counts the samples so far."""

    def __init__(self, total: Any) -> None:
        self._total = total
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._thread: int | None = None  # the training thread of this process
        self._snapshots: list[Counts] = []  # totals at the time of optimizer states that are not saved yet

    def trains(self) -> None:
        """Notes that the calling thread trains."""
        self._thread = threading.get_ident()

    def take_state(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Takes an optimizer's `state_dict`: another thread may save the state while this one trains on."""
        if threading.get_ident() == self._thread:
            self._snapshots = [*self._snapshots[-1:], self._now()]  # two are ambiguous already
        return state_dict(*args, **kwargs)

    def save(self, save: Any, obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        """Saves by `torch.save`, and notes how many samples were trained when writing began."""
        seen = self._seen()
        save(obj, f, *args, **kwargs)
        if seen is not None:
            record(f, seen)

    def _seen(self) -> Counts | None:
        """Returns the samples and tokens behind a file that this thread saves; None if unknown.

        In a thread or process that does not train, they are known if exactly one optimizer state is unsaved.
        """
        snapshots, self._snapshots = self._snapshots, []
        if self._thread == threading.get_ident():
            return self._now()
        return snapshots[0] if len(snapshots) == 1 else None

    def _now(self) -> Counts:
        return Counts(self._total.samples, self._total.tokens)


def record(target: Any, seen: Counts) -> None:
    """Notes the counts `seen` behind `target`, a path or an open file, for a trial that resumes from it."""
    try:
        if digest := digest_of(target):
            note(notes_file(os.environ[autotune_wire.WORKDIR]), digest, seen)
    except Exception:  # noqa: BLE001, S110 - a full disk or an odd file: the trial then restarts from scratch
        pass
