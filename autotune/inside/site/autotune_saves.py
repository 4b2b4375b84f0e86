"""Records the samples behind every checkpoint of a script, so that a trial resumes at the right count.

Files are recognized by content, because scripts rename checkpoints, copy them with old timestamps, and save
them from threads and over networks whose clocks differ.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
from contextlib import suppress
from typing import Any, NamedTuple

_TAIL_BYTES = 2**18  # a file of torch.save ends with checksums of all its tensors
_PIECES, _PIECE_BYTES = 16, 4096  # spread over the rest, for formats without checksums


class Counts(NamedTuple):
    """The samples and tokens that a model was trained on; None: not counted."""

    samples: int
    tokens: int | None = None


def notes_file(workdir: str) -> str:
    return os.path.join(workdir, ".saves")  # noqa: PTH118 - a script may have no pathlib yet


def digest_of(target: Any) -> str | None:
    """Returns the digest of `target`, a path or an open file; None if it cannot be read."""
    if hasattr(target, "getbuffer"):
        return digest(io.BytesIO(target.getbuffer()))
    if hasattr(target, "flush"):
        target.flush()
        target = getattr(target, "name", None)
    if not isinstance(target, (str, os.PathLike)):
        return None
    with open(target, "rb") as stream:  # noqa: PTH123 - a script may have no pathlib yet
        return digest(stream)


def digest(stream: Any) -> str:
    """Returns a digest of a seekable binary stream: of its size, its end, and samples of the rest."""
    size = stream.seek(0, os.SEEK_END)
    checksum = hashlib.blake2b(str(size).encode(), digest_size=16)
    tail = max(0, size - _TAIL_BYTES)
    pieces = [(tail * piece // _PIECES, _PIECE_BYTES) for piece in range(_PIECES if tail else 0)]
    for begin, length in [*pieces, (tail, _TAIL_BYTES)]:
        stream.seek(begin)
        checksum.update(stream.read(length))
    return checksum.hexdigest()


def read_notes(file: str) -> dict[str, Counts]:
    """Returns all notes by digest, without lines cut short by a kill or a full disk."""
    notes = {}
    with suppress(OSError, ValueError, KeyError, TypeError), open(file, encoding="utf-8") as lines:  # noqa: PTH123
        for line in lines:
            if line.endswith("}\n"):
                one = json.loads(line)
                notes[one["digest"]] = Counts(one["samples"], one["tokens"])
    return notes


class Saving:
    """Notes the samples behind each file of `torch.save`; `total` counts the samples so far."""

    def __init__(self, total: Any, workdir: str) -> None:
        self._total, self._workdir = total, workdir
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._thread: int | None = None  # the training thread of this process
        self._snapshots: list[Counts] = []  # totals at the time of optimizer states that are not saved yet

    def trains(self) -> None:
        self._thread = threading.get_ident()

    def take_state(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Notes the samples behind an optimizer's state, which another thread may save later; returns it."""
        if threading.get_ident() == self._thread:
            self._snapshots = [*self._snapshots[-1:], self._now()]  # two are ambiguous already
        return state_dict(*args, **kwargs)

    def save(self, save: Any, obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        """Saves by `torch.save`, and notes how many samples were trained when writing began."""
        snapshots, self._snapshots = self._snapshots, []
        if self._thread == threading.get_ident():
            snapshots = [self._now()]
        save(obj, f, *args, **kwargs)
        if len(snapshots) == 1:  # in a thread or process that does not train, several are ambiguous
            record(self._workdir, f, snapshots[0])

    def _now(self) -> Counts:
        return Counts(self._total.samples, self._total.tokens)


def record(workdir: str, target: Any, seen: Counts) -> None:
    """Notes the counts `seen` behind `target`, a path or an open file, for a trial that resumes from it."""
    with suppress(Exception):  # a full disk or an odd file: the trial then restarts from scratch
        if (found := digest_of(target)) is None:
            return
        line = json.dumps({"digest": found, **seen._asdict()}) + "\n"
        descriptor = os.open(notes_file(workdir), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, line.encode())  # at once, since several processes may save
        finally:
            os.close(descriptor)
