"""Fingerprints of a workload's code and data."""

import ast
import hashlib
import importlib.util
import itertools
import os
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path

from autotune.core.errors import InputError
from autotune.workloads.readers import parse_python

_DIGITS = 12
_TUNER = __name__.partition(".")[0]
_LIBRARIES = {"site-packages", "dist-packages"}
_LEFT_OUT = {"node_modules", "__pycache__"}
# Suffixes and names of code and configs, without documentation and data.
_READ = {".py", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".sh", "Makefile"}
_MAGIC = "*?["
_LARGE_BYTES = 2**24  # larger files count as data, identified by size and time


def revision_of_module(module: str) -> str:
    """Returns a fingerprint of the code of `module`: 12 hex digits, "" if there is no such module.

    Covers its package and, transitively, every module of the user's own that it imports. Imports are found
    anywhere in the source, without running it; computed names are missed.
    """
    package = _package(module.partition(".")[0])
    if not package:
        return ""
    digest = hashlib.sha256(b"".join(map(_content, package.values())))
    for name, file in sorted(_followed(package).items()):
        digest.update(name.encode() + b"\0" + _content(file))
    return digest.hexdigest()[:_DIGITS]


def _package(top: str) -> dict[str, Path]:
    spec = find_spec(top)
    if spec is None:
        return {}
    places = map(Path, spec.submodule_search_locations or ())
    files = {file: place for place in places for file in _below(place) if file.suffix == ".py"}
    if files:
        paths = {file: file.relative_to(files[file]).with_suffix("").parts for file in sorted(files)}
        return {".".join([top, *parts]).removesuffix(".__init__"): file for file, parts in paths.items()}
    return {top: Path(spec.origin)} if spec.origin and spec.has_location else {}


def _followed(package: Mapping[str, Path]) -> dict[str, Path]:
    """Returns the user's modules outside of `package` that it imports, transitively."""
    modules: dict[str, Path] = {}
    looked_at, waiting = set(package), list(package.items())
    while waiting:
        name, file = waiting.pop()
        own = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
        imported: set[str] = set()  # with the packages above
        for level, path in _imports(_content(file)):
            above = own[: len(own) + 1 - level] if level else []
            imported |= set(itertools.accumulate([*above, *filter(None, path.split("."))], "{}.{}".format))
        for found in imported - looked_at:
            looked_at.add(found)
            if (source := _source(found)) is not None:
                modules[found] = source
                waiting.append((found, source))
    return modules


@lru_cache(maxsize=4096)  # needed for every trial; parsing takes 0.1 s
def _imports(source: bytes) -> frozenset[tuple[int, str]]:
    """Returns (leading dots, name) of all imports; `from a import b` gives `a.b`, which may be no module."""
    names: set[tuple[int, str]] = set()
    with suppress(InputError):
        for node in ast.walk(parse_python(source)):
            if isinstance(node, ast.Import):
                names |= {(0, alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {(node.level, f"{node.module or ''}.{alias.name}") for alias in node.names}
    return frozenset(names)


def _source(name: str) -> Path | None:
    """Returns the file of the module `name`; None if there is none, or it is not the user's own."""
    top, *rest = name.split(".")
    spec = find_spec(top) if top != _TUNER else None
    if spec is None:
        return None
    files = [Path(spec.origin)] if spec.origin and spec.has_location else []
    if rest:
        stems = [Path(place, *rest) for place in spec.submodule_search_locations or ()]
        files = [file for stem in stems for file in (stem / "__init__.py", Path(f"{stem}.py"))]
    own = (file for file in files if file.suffix == ".py" and file.is_file() and not _is_installed(file))
    return next(own, None)


def find_spec(module: str) -> ModuleSpec | None:
    """Returns the spec of a module, importing only the packages above it; None if there is none."""
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):  # a parent is no package, or it is __main__
        return None


def may_be_the_users(word: Path) -> bool:
    """Returns True if a word of a command may be a file of the user, not an interpreter or launcher."""
    return not word.is_absolute() or (word.suffix in _READ and not _is_installed(word))


def _is_installed(file: Path) -> bool:
    installed = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return bool(_LIBRARIES & set(file.parts)) or any(file.is_relative_to(place) for place in installed)


def revision_of_files(directory: Path, patterns: Sequence[str] = (), besides: Sequence[Path] = ()) -> str:
    """Returns a fingerprint, 12 hex digits, of files by name and content; by size and time above 16 MiB."""
    digest = hashlib.sha256()
    for file in sorted({*files(directory, patterns), *besides}):
        digest.update(os.path.relpath(file, directory).encode(errors="surrogateescape") + b"\0")
        size_and_time = _size_and_time(file)
        is_data = size_and_time[0] > _LARGE_BYTES
        digest.update(repr(size_and_time).encode() if is_data else _content(file))
    return digest.hexdigest()[:_DIGITS]


def files(directory: Path, patterns: Sequence[str] = ()) -> list[Path]:
    """Returns the files that match a glob pattern relative to `directory`, sorted.

    `**` skips hidden directories, virtual environments, node_modules and __pycache__ unless they are named. A
    directory stands for the Python files below it. The default is the programs and configs that git tracks
    below `directory`, and Python files that it does not ignore; without git, all Python files.
    """
    if not patterns:
        read = (file for file in _tracked(directory) if file.suffix in _READ or file.name in _READ)
        tracked = [f for f in read if not any(_is_foreign(p) for p in f.parents if directory in p.parents)]
        return sorted(tracked or files(directory, ["**/*.py"]))
    found: set[Path] = set()
    for pattern in patterns:
        parts = Path(pattern).parts
        named = next((i for i, part in enumerate(parts) if any(sign in part for sign in _MAGIC)), len(parts))
        place, wanted = directory.joinpath(*parts[:named]), parts[named:]
        if place.is_file() and not wanted:
            found.add(place)
        below = _below(place, leaves_out=True)
        found |= {one for one in below if _fits(one.relative_to(place).parts, wanted or ("**", "*.py"))}
    return sorted(found)


def _fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return any(_fits(parts[skipped:], wanted[1:]) for skipped in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], wanted[0]) and _fits(parts[1:], wanted[1:])


def _is_foreign(place: Path) -> bool:
    """Returns True for a virtual environment, or a session: interrupted trials have copies of scripts."""
    is_session = (place / "session.json").exists() and (place / "space.yaml").exists()
    return is_session or (place / "pyvenv.cfg").exists()


def _tracked(directory: Path) -> list[Path]:
    """Returns the files that git tracks below `directory`, and new Python files; none without git."""
    listed = ["git", "-C", str(directory), "ls-files", "-z"]
    asked = [[*listed, "--recurse-submodules"], [*listed, "--others", "--exclude-standard", "--", "*.py"]]
    try:
        outputs = [subprocess.run(command, capture_output=True, check=True).stdout for command in asked]  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return []
    return [directory / os.fsdecode(name) for name in {*b"".join(outputs).split(b"\0")} if name]


def _below(directory: Path, *, leaves_out: bool = False) -> Iterator[Path]:
    """Yields all files below `directory`, in a stable order; links to directories are not followed."""
    for place, below, names in os.walk(directory):
        below.sort()
        if leaves_out:  # hidden directories, virtual environments, and those of packages and caches
            own = (name for name in below if not name.startswith(".") and name not in _LEFT_OUT)
            below[:] = [name for name in own if not _is_foreign(Path(place, name))]
        yield from (Path(place, name) for name in sorted(names))


def fingerprint_of_data(directory: Path, names: Iterable[str], most_files: int = 10_000) -> str:
    """Returns a fingerprint, 12 hex digits, of data by name, size and time; contents are not read."""
    digest = hashlib.sha256()
    for name in names:
        path = directory / name
        # Directories may be huge: 10,000 files take 0.1 s.
        for file in itertools.islice(_below(path) if path.is_dir() else [path], most_files):
            path_of_file = Path(name, file.relative_to(path))
            digest.update(f"{path_of_file}\0{_size_and_time(file)}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()[:_DIGITS]


def _size_and_time(file: Path) -> tuple[int, int]:
    """Returns size in bytes and mtime in ns; both -1 if there is no such file."""
    try:
        status = file.stat()
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
