"""A bounded cache in the user's cache directory, for data that is computed once and read by every run.

An entry is a directory that appears atomically: it is built under another name and renamed.
"""

import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from r2gen.errors import printable

T = TypeVar("T")

_BUSY_S = 3600.0  # an entry used so recently will likely be used again, by the next trial of a search
_RESERVE_BYTES = 2**30  # of disk space, kept free for checkpoints and studies


class NotKeptError(Exception):
    """The entry cannot be cached, for the reason in the text. Also raised by entry makers."""


def directory() -> Path:
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home, as in some containers
        home = Path(tempfile.gettempdir(), f"cache-{os.getuid()}")
    return home / "autotune-r2gen" / "r2gen"


def opened(
    name: str, needed_bytes: int, limit_bytes: int, make: Callable[[Path], None], read: Callable[[Path], T]
) -> T | None:
    """Returns the result of `read` on the entry `name`, which `make` fills if it does not exist yet.

    An entry takes about `needed_bytes`, and all together at most `limit_bytes`: the least recently used are
    evicted, except those used within the last hour. An entry that `read` rejects with OSError, ValueError or
    KeyError is corrupt, or was just removed, and is rebuilt. Concurrent processes build it once; the others
    wait. Returns None, with the reason on stderr, if it cannot be cached.
    """
    for _ in range(2):
        place = _entry(name, needed_bytes, limit_bytes, make)
        if place is None:
            return None
        try:
            return read(place)
        except (OSError, ValueError, KeyError):
            forget(place)
    _say(f"{directory() / name} is damaged again and again")
    return None


def _entry(name: str, needed_bytes: int, limit_bytes: int, make: Callable[[Path], None]) -> Path | None:
    root, place = directory(), directory() / name
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)  # they may be images of patients
        with _lock(root / f"{name}.lock"):
            if not place.exists():
                _make_room(root, needed_bytes, limit_bytes)
                _make(place, make)
            os.utime(place)  # marks it as recently used
    except NotKeptError as error:
        _say(str(error))
        return None
    except OSError as error:
        _say(f"{root} cannot be written: {error.strerror}")
        return None
    return place


def remembered(name: str, compute: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Returns `compute()`, cached in a small file that does not count towards the limit.

    If the cache is corrupt or not writable, the value is computed again.
    """
    file = directory() / f"{name}.json"
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return {str(key): float(value) for key, value in json.loads(file.read_bytes()).items()}
    found = compute()
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(file, json.dumps(found))
    return found


def _replace(file: Path, text: str) -> None:
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def forget(place: Path) -> None:
    """Removes a corrupt entry; the next caller rebuilds it."""
    shutil.rmtree(place, ignore_errors=True)


def _say(why: str) -> None:
    text = printable(f"images are not cached, and prepared again every time: {why}")
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Locks `file`; the kernel releases the lock if the process dies."""
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _make(place: Path, make: Callable[[Path], None]) -> None:
    for left in place.parent.glob(f"{place.name}.making-*"):
        forget(left)
    made = Path(tempfile.mkdtemp(prefix=f"{place.name}.making-", dir=place.parent))
    try:
        make(made)
        for file in made.iterdir():
            _sync(file)
        made.rename(place)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _sync(file: Path) -> None:
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def _make_room(root: Path, needed_bytes: int, limit_bytes: int) -> None:
    """Evicts least recently used entries until `needed_bytes` fit; raises NotKeptError if they cannot."""
    _remove_leftovers(root)
    places = [p for p in root.iterdir() if p.is_dir() and ".making-" not in p.name]
    total = sum(map(_bytes, places))
    idle = [p for p in places if _used_at(p) < time.time() - _BUSY_S]
    for place in sorted(idle, key=_used_at):
        if total + needed_bytes <= limit_bytes:
            break
        total -= _bytes(place)
        forget(place)
    needed, limit, others = (_gib(value) for value in (needed_bytes, limit_bytes, total))
    if total + needed_bytes > limit_bytes:
        raise NotKeptError(f"they take {needed}, others in use {others}, image_cache_gib allows {limit}")
    if needed_bytes + _RESERVE_BYTES > (free := shutil.disk_usage(root).free):
        raise NotKeptError(f"they take {needed}, and {root} has {_gib(free)} free")


def _gib(value: float) -> str:
    return f"{value / 2**30:.3g} GiB"


def _remove_leftovers(root: Path) -> None:
    """Removes incomplete entries of killed processes, recognised by locks that nobody holds."""
    for left in root.glob("*.making-*"):
        with suppress(OSError), (root / f"{left.name.partition('.')[0]}.lock").open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)


def _used_at(place: Path) -> float:
    with suppress(OSError):  # another process removes it at the same time
        return place.stat().st_mtime
    return 0.0


def _bytes(place: Path) -> int:
    with suppress(OSError):
        return sum(file.stat().st_size for file in place.iterdir())
    return 0
