"""Greyscale images, decoded and resized once and cached in a memory-mapped file.

Decoding and resizing a PNG takes far longer than cropping the result, and would keep a GPU waiting.
"""

import hashlib
import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import PIL
from PIL import Image

from r2gen import cache
from r2gen.errors import BadImageError, printable

FORMAT = 1
_AT_ONCE = 64  # images in memory while a cache is made
_THREADS = 8
_ASPECT = 1.25  # mean ratio of a chest X-ray's longer side to its shorter one
_MANY = 2000  # images; decoding them takes half a minute
_DATA, _INDEX = "pixels.u8", "index.json"


@dataclass(frozen=True)
class Rendition:
    """The size of a cached image: `size` x `size`, or with `crop` a shorter side of `size`."""

    size: int
    crop: bool

    def render(self, path: Path) -> np.ndarray:
        """Returns the image as uint8 [H, W]; raises BadImageError if it cannot be decoded."""
        image = _decoded(path)
        if not self.crop:
            return np.asarray(image.resize((self.size, self.size), Image.Resampling.BILINEAR))
        scale = self.size / min(image.size)
        width, height = (max(self.size, round(side * scale)) for side in image.size)
        return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))


def _decoded(path: Path) -> Image.Image:
    try:
        with Image.open(path) as opened:
            return opened.convert("L")
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - Pillow raises any exception for a broken file
        text = " ".join(str(error).split())
        raise BadImageError(f"image {path} cannot be decoded: {text or type(error).__name__}") from None


class Images(Protocol):
    """Images by index, each a read-only uint8 [H, W]; raises BadImageError for an image that is broken."""

    def __getitem__(self, index: int, /) -> np.ndarray: ...


@dataclass(frozen=True)
class Decoded:
    """Images that are decoded on every access."""

    paths: Sequence[Path]
    rendition: Rendition

    def __getitem__(self, index: int) -> np.ndarray:
        return self.rendition.render(self.paths[index])


class Kept:
    """Images from a cache, each verified the first time a process reads it.

    An image that is corrupt in the cache, or could not be decoded before, is decoded from its file.
    """

    def __init__(self, place: Path, decoded: Decoded) -> None:
        index = json.loads((place / _INDEX).read_text(encoding="utf-8"))
        self._entries: list[list[int]] = index["images"]  # offset, height, width, checksum; empty if broken
        mapped = np.memmap(place / _DATA, np.uint8, "r")
        if len(mapped) != index["bytes"]:
            raise ValueError("the pixels are not all there")
        self._pixels = mapped.view(np.ndarray)  # slices of a memmap cost more
        self._place, self._decoded = place, decoded
        self._is_checked = bytearray(len(self._entries))

    def __reduce__(self) -> tuple[Any, ...]:
        """Maps the same file in the other process, for workers that are not forked."""
        return Kept, (self._place, self._decoded)

    def __getitem__(self, index: int) -> np.ndarray:
        entry = self._entries[index]
        if not entry:
            return self._decoded[index]
        offset, height, width, checksum = entry
        pixels = self._pixels[offset : offset + height * width]
        if not self._is_checked[index]:
            if zlib.crc32(pixels.data) != checksum:
                cache.forget(self._place)
                return self._decoded[index]
            self._is_checked[index] = True
        return pixels.reshape(height, width)


def load(paths: Sequence[Path], rendition: Rendition, limit_bytes: int) -> Images:
    """Returns the images at `paths`, from a cache of at most `limit_bytes`, which is created if necessary."""
    decoded = Decoded(paths, rendition)
    if not limit_bytes:
        return decoded
    name = f"images-{_key(paths, rendition)}"
    make, read = partial(_make, decoded=decoded), partial(Kept, decoded=decoded)
    needed = int(len(paths) * rendition.size**2 * (_ASPECT if rendition.crop else 1))
    return cache.opened(name, needed, limit_bytes, make, read) or decoded


def _make(place: Path, decoded: Decoded) -> None:
    if len(decoded.paths) >= _MANY:
        text = printable(f"decoding {len(decoded.paths)} images, once, into {place.parent}")
        print(text, file=sys.stderr, flush=True)
    entries: list[list[int]] = []
    with (place / _DATA).open("wb") as file:
        for image in _rendered(decoded):
            if image is None:
                entries.append([])
                continue
            entries.append([file.tell(), *image.shape, zlib.crc32(image.data)])
            file.write(image.data)
        size = file.tell()
    index = {"bytes": size, "images": entries}
    (place / _INDEX).write_text(json.dumps(index), encoding="utf-8")


def _rendered(decoded: Decoded) -> Iterator[np.ndarray | None]:
    """Yields every image in order, None for a broken one; decoded in parallel by threads."""
    with ThreadPoolExecutor(min(_THREADS, len(os.sched_getaffinity(0)))) as pool:
        for first in range(0, len(decoded.paths), _AT_ONCE):
            yield from pool.map(
                partial(_or_none, decoded), range(len(decoded.paths))[first : first + _AT_ONCE]
            )


def _or_none(decoded: Decoded, index: int) -> np.ndarray | None:
    try:
        return np.ascontiguousarray(decoded[index])
    except BadImageError:
        return None


def _key(paths: Sequence[Path], rendition: Rendition) -> str:
    """Returns a cache key made of every file's content and the rendition."""
    made_by = f"{FORMAT} {PIL.__version__} {rendition}"
    digest = hashlib.blake2b(made_by.encode(), digest_size=16)
    for content in contents(paths):
        digest.update(content.encode())
    return digest.hexdigest()


def contents(paths: Sequence[Path]) -> list[str]:
    """Returns a digest of each file's content, memoised by the file's size and timestamps."""
    memo_file = cache.directory() / f"digests-{_text_digest('|'.join(map(str, paths)))}.json"
    known = _read_memo(memo_file)
    states = [_state(path) for path in paths]
    if [entry[:-1] for entry in known] != states:
        before = {(str(path), *entry[:-1]): entry[-1] for path, entry in zip(paths, known, strict=False)}
        with ThreadPoolExecutor(_THREADS) as pool:
            known = list(pool.map(partial(_memo_entry, before), paths, states))
        _write_memo(memo_file, known)
    return [entry[-1] for entry in known]


def _memo_entry(before: dict[tuple[Any, ...], str], path: Path, state: list[int]) -> list[Any]:
    return [*state, before.get((str(path), *state)) or _file_digest(path)]


def _state(path: Path) -> list[int]:
    try:
        status = path.stat()
    except OSError:
        return [-1, -1, -1]
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError as error:
        return f"unreadable {error.errno}"


def _text_digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _read_memo(file: Path) -> list[list[Any]]:
    try:
        memo = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return memo if isinstance(memo, list) else []


def _write_memo(file: Path, memo: list[list[Any]]) -> None:
    """Stores the digests. If that fails, the next run only has to read every file again."""
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.write_text(json.dumps(memo), encoding="utf-8")
        temporary.replace(file)
    except OSError:
        return
