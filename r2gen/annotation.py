"""Reads and checks R2Gen's data layout: `annotation.json` with its splits, images under `images/`."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2gen.config import Config
from r2gen.errors import InputError, format_value

SPLITS = ("train", "val", "test")
_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM", b"II*\x00", b"MM\x00*", b"GIF8")
_SHOWN = 3


@dataclass(frozen=True)
class Study:
    """One examination: its report, and its images in the order of the annotation."""

    id: str
    report: str
    images: tuple[Path, ...]


@dataclass(frozen=True)
class Annotation:
    """The studies of each split, and the number of invalid studies that were left out."""

    splits: Mapping[str, tuple[Study, ...]]
    skipped: int


def load_annotation(config: Config) -> Annotation:
    """Loads the data set of `config`; raises InputError naming the first invalid studies.

    With `skip_bad_samples` invalid studies are left out and counted instead.
    """
    file = config.data / "annotation.json"
    raw = _read(file)
    splits: dict[str, tuple[Study, ...]] = {}
    mistakes: list[str] = []
    for split in SPLITS:
        entries = raw.get(split)
        if not isinstance(entries, list):
            raise InputError(f"{file}: must have the lists train, val and test: {split} is {_kind(entries)}")
        good = []
        for position, entry in enumerate(entries):
            mistake = _mistake(entry, config)
            if mistake is None:
                good.append(_study(entry, config))
            else:
                mistakes.append(f"{split} study {_name(entry, position)}: {mistake}")
        splits[split] = tuple(good)
    _refuse(file, mistakes, config)
    for split, studies in splits.items():
        if not studies:
            raise InputError(f"{file}: the split {split} has no usable study")
    return Annotation(splits, len(mistakes))


def fingerprint(config: Config) -> str:
    """Returns a fingerprint of the data of `config`.

    It covers the content of the annotation and of the weights, and the names and sizes of the images, whose
    content takes too long to read. Location and modification times do not count. Raises InputError as
    `load_annotation` does, and if one of these files cannot be read.
    """
    splits = load_annotation(config).splits
    try:
        return _digest(config, [image for studies in splits.values() for s in studies for image in s.images])
    except OSError as error:
        raise InputError(f"{error.filename or config.data}: cannot be read: {error.strerror}") from None


def _digest(config: Config, images: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in (config.data / "annotation.json", config.visual_weights):
        if file is not None:
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    root = os.path.realpath(config.data / "images")
    for image in images:
        name = Path("images", os.path.relpath(os.path.realpath(image), root))
        digest.update(f"{name} {image.stat().st_size}\n".encode())
    return digest.hexdigest()[:12]


def _read(file: Path) -> dict[str, Any]:
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: is not JSON in UTF-8: {error}") from None
    if not isinstance(raw, dict):
        raise InputError(f"{file}: must be an object with the lists train, val and test, got {_kind(raw)}")
    return raw


def _refuse(file: Path, mistakes: list[str], config: Config) -> None:
    if mistakes and not config.skip_bad_samples:
        more = f"; and {len(mistakes) - _SHOWN} more" if len(mistakes) > _SHOWN else ""
        raise InputError(f"{file}: {'; '.join(mistakes[:_SHOWN])}{more} (skip_bad_samples leaves them out)")


def _mistake(entry: Any, config: Config) -> str | None:
    """Returns the mistake in one entry, None if it is usable."""
    if not isinstance(entry, dict):
        return f"must be an object, got {_kind(entry)}"
    report, paths = entry.get("report"), entry.get("image_path")
    if not isinstance(report, str) or not any(c.isalnum() for c in report):
        return "its report has no words"
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        return f"image_path must be a list of paths, got {_kind(paths)}"
    if len(paths) < config.views:
        return f"{config.dataset} needs {config.views} images, got {len(paths)}"
    root = Path(os.path.realpath(config.data / "images"))
    return next(filter(None, (_fault(root, path) for path in paths[: config.views])), None)


def _fault(root: Path, path: str) -> str | None:
    """Returns the fault of the image at `path` below `root`, None if it is usable."""
    try:
        file = Path(os.path.realpath(root / path))
        if not file.is_relative_to(root):
            return f"image {format_value(path)} lies outside {root}"
        if not file.is_file():
            return f"image {format_value(path)} is not there"
        return None if _is_image(file) else f"image {format_value(path)} is not an image"
    except (OSError, ValueError) as error:  # a name that no file can have, or a file that cannot be read
        return f"image {format_value(path)} cannot be read: {getattr(error, 'strerror', error)}"


def _is_image(file: Path) -> bool:
    """Returns True if the first bytes mark an image; decoding all of MIMIC-CXR would take minutes."""
    with file.open("rb") as stream:
        return stream.read(8).startswith(_SIGNATURES)


def _study(entry: Mapping[str, Any], config: Config) -> Study:
    paths = entry["image_path"][: config.views]
    images = tuple(config.data / "images" / path for path in paths)
    return Study(str(entry.get("id", paths[0])), entry["report"], images)


def _name(entry: Any, position: int) -> str:
    return format_value(entry["id"]) if isinstance(entry, dict) and "id" in entry else f"number {position}"


def _kind(value: Any) -> str:
    return "missing" if value is None else type(value).__name__
