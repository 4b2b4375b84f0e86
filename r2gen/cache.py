"""What is computed once and read by every run: kept in the user's cache directory, made once, bounded.

An entry is a directory that appears whole: it is made under another name and renamed.
"""

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class DoesNotFitError(Exception):
    """An entry would be larger than the cache may be. Raised by its maker; the text says how large it is."""


def directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autotune-r2gen" / "r2gen"


def entry(name: str, limit_bytes: int, make: Callable[[Path], None]) -> Path | None:
    """The entry `name`, made by `make` in the empty directory that it is given, where it is not there yet.

    Processes that ask at the same time make it once, and the others wait. Entries that were not used for the
    longest time go when all together take more than `limit_bytes`; who has one open keeps its files. None,
    with a line on stderr that says why, where it does not fit or cannot be written.
    """
    root, place = directory(), directory() / name
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)  # they may be images of patients
        with _lock(root / f"{name}.lock"):
            if not place.exists():
                _make(place, make)
            os.utime(place)  # used just now
        _shrink(root, limit_bytes, place)
    except DoesNotFitError as error:
        _say(f"{error}, image_cache_gib allows {limit_bytes / 2**30:.3g} GiB")
        return None
    except OSError as error:
        _say(f"{root} cannot be written: {error.strerror}")
        return None
    return place


def forget(place: Path) -> None:
    """Removes an entry that turned out to be spoilt; it is made again by who asks for it next."""
    shutil.rmtree(place, ignore_errors=True)


def _say(why: str) -> None:
    print(f"images are prepared anew every epoch: {why}", file=sys.stderr, flush=True)


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Holds `file`; the kernel lets go of it when its holder dies, however that happens."""
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _make(place: Path, make: Callable[[Path], None]) -> None:
    for left in place.parent.glob(f"{place.name}.making-*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
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


def _shrink(root: Path, limit_bytes: int, kept: Path) -> None:
    """Removes the entries used longest ago until what is left fits, but never `kept`."""
    places = [p for p in root.iterdir() if p.is_dir() and p != kept and ".making-" not in p.name]
    total = sum(map(_bytes, [kept, *places]))
    for place in sorted(places, key=_used_at):
        if total <= limit_bytes:
            return
        total -= _bytes(place)
        forget(place)


def _used_at(place: Path) -> float:
    with suppress(OSError):  # another process removes it at the same time
        return place.stat().st_mtime
    return 0.0


def _bytes(place: Path) -> int:
    with suppress(OSError):
        return sum(file.stat().st_size for file in place.iterdir())
    return 0
