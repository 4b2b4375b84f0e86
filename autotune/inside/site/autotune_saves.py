"""Records the samples behind every checkpoint of a script, so that a trial resumes at the right count.

The script notes each file it saves; the tuner looks up the trial's checkpoint. Files are recognized by
content, because scripts rename checkpoints, copy them with old timestamps, and save them from threads and
over networks whose clocks differ.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from typing import Any, NamedTuple

_TAIL_BYTES = 2**18  # a file of torch.save ends with checksums of all its tensors
_PIECES, _PIECE_BYTES = 16, 4096  # spread over the rest, for formats without checksums


class Counts(NamedTuple):
    """The samples and tokens that a model was trained on; None: not counted."""

    samples: int
    tokens: int | None = None


def notes_file(workdir: str) -> str:
    """Returns the path of a trial's notes."""
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


def note(file: str, digest: str, counts: Counts) -> None:
    """Appends a checkpoint to the notes in a single write, since several processes may save."""
    line = json.dumps({"digest": digest, **counts._asdict()}) + "\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read_notes(file: str) -> dict[str, Counts]:
    """Returns all notes by digest, without lines cut short by a kill or a full disk."""
    notes = {}
    try:
        with open(file, encoding="utf-8") as lines:  # noqa: PTH123 - as above
            for line in lines:
                if line.endswith("}\n"):
                    one = json.loads(line)
                    notes[one["digest"]] = Counts(one["samples"], one["tokens"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return notes
