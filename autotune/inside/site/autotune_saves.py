"""The samples behind every checkpoint that a script has saved, so that a trial resumes at the right count.

The script notes each file that it saves, the tuner looks the trial's checkpoint up. A file is recognized by
its content: scripts rename checkpoints, copy them with old times, and save them from threads and over
networks whose clocks differ.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from typing import Any, Iterable, NamedTuple  # noqa: UP035 - for Python 3.8

_TAIL_BYTES = 2**18  # a file of torch.save ends with the checksums of all its tensors
_PIECES, _PIECE_BYTES = 16, 4096  # spread over the rest of it, for formats without checksums


class Saved(NamedTuple):
    """The samples and tokens that a checkpoint has in it; None: not counted."""

    samples: int
    tokens: int | None = None


def file_of(workdir: str) -> str:
    """Returns the path of a trial's notes."""
    return os.path.join(workdir, ".saves")  # noqa: PTH118 - a script may have no pathlib yet


def digest_of(target: Any) -> str | None:
    """Returns the digest of what is in `target`, a path or an open file; None if it cannot be read."""
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
    """Returns a digest of a seekable binary stream: of its size, its end, and pieces of the rest."""
    size = stream.seek(0, os.SEEK_END)
    found = hashlib.blake2b(str(size).encode(), digest_size=16)
    for begin, length in _sampled(size):
        stream.seek(begin)
        found.update(stream.read(length))
    return found.hexdigest()


def _sampled(size: int) -> Iterable[tuple[int, int]]:
    """Yields where to read, and how many bytes."""
    tail = max(0, size - _TAIL_BYTES)
    yield from ((tail * piece // _PIECES, _PIECE_BYTES) for piece in range(_PIECES if tail else 0))
    yield tail, _TAIL_BYTES


def note(file: str, digest: str, saved: Saved) -> None:
    """Adds a checkpoint to the notes, in one write: several processes may save."""
    line = json.dumps({"digest": digest, **saved._asdict()}) + "\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def noted(file: str) -> dict[str, Saved]:
    """Returns all notes by digest; a line that a kill or a full disk has cut off is left out."""
    found = {}
    try:
        with open(file, encoding="utf-8") as lines:  # noqa: PTH123 - as above
            for line in lines:
                if line.endswith("}\n"):
                    one = json.loads(line)
                    found[one["digest"]] = Saved(one["samples"], one["tokens"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return found
