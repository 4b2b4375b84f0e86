"""Fingerprints of what a workload is made of: the modules that a function imports, files, data."""

import ast
import hashlib
import importlib.util
import os
import subprocess
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path

_DIGITS = 12
_TUNER = __name__.partition(".")[0]
_LIBRARIES = {"site-packages", "dist-packages"}
_LEFT_OUT = {"node_modules", "__pycache__"}
# What a training is made of, by suffix or name: neither its documentation nor its data.
_READ = {".py", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".sh", "Makefile"}
_MAGIC = "*?["
_LARGE_BYTES = 2**24  # a file beyond that is data, which is identified by its size and time
_MOST_FILES = 10_000  # of a directory of data whose sizes and times are looked at


def revision_of_module(module: str) -> str:
    """What identifies the code of `module`: 12 hex digits, "" where there is no such module.

    That code is the whole package that `module` is in, and every module of the user's own that one of its
    files imports, at whatever depth: wherever the import is written, and nothing is run to find out. Neither
    the standard library, nor what is installed, nor the tuner is of the user's own. An import whose name is
    computed is not seen. Where nothing outside of the package is imported, the package's bytes alone count.
    """
    package = _package(module.partition(".")[0])
    if not package:
        return ""
    digest = hashlib.sha256()
    for file in package.values():
        digest.update(_content(file))
    for name, file in sorted(_followed(package).items()):
        digest.update(name.encode() + b"\0" + _content(file))
    return digest.hexdigest()[:_DIGITS]


def _package(top: str) -> dict[str, Path]:
    """The Python files of the package, or of the single module, `top`, by the names of their modules."""
    spec = _spec(top)
    if spec is None:
        return {}
    places = map(Path, spec.submodule_search_locations or ())
    files = {file: place for place in places for file in _below(place, _all) if file.suffix == ".py"}
    if files:
        return {_name(top, file.relative_to(files[file])): file for file in sorted(files)}
    return {top: Path(spec.origin)} if spec.origin and spec.has_location else {}


def _name(top: str, file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join([top, *(parts[:-1] if parts[-1] == "__init__" else parts)])


def _followed(package: Mapping[str, Path]) -> dict[str, Path]:
    """The user's own modules outside of `package` that it imports, and that those import, and so on."""
    found: dict[str, Path] = {}
    looked_at, waiting = set(package), list(package.items())
    while waiting:
        for name in set(_imported(*waiting.pop())) - looked_at:
            looked_at.add(name)
            if (file := _source(name)) is not None:
                found[name] = file
                waiting.append((name, file))
    return found


def _imported(name: str, file: Path) -> Iterator[str]:
    """The names that the module called `name` may import, and the packages that they are in."""
    package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for level, imported in _imports(_content(file)):
        above = package[: len(package) + 1 - level] if level else []
        parts = [*above, *filter(None, imported.split("."))]
        yield from (".".join(parts[: n + 1]) for n in range(len(parts)))


@lru_cache(maxsize=4096)  # asked for with every order of a trial, and parsed in a tenth of a second
def _imports(source: bytes) -> frozenset[tuple[int, str]]:
    """The names that Python `source` imports, and how many dots are before each.

    Of `from a import b` that is `a.b`, which may be a module or not.
    """
    found: set[tuple[int, str]] = set()
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.Import):
            found |= {(0, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.level, f"{node.module or ''}.{alias.name}") for alias in node.names}
    return frozenset(found)


def imports(file: Path, module: str) -> bool:
    """Whether a Python `file` imports `module`, or a part of it."""
    return any(level == 0 and name.split(".")[0] == module for level, name in _imports(_content(file)))


def _parsed(source: bytes) -> ast.AST:
    """Its tree; an empty one where it is no Python, or for another version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):
            return ast.Module([], [])


def _source(name: str) -> Path | None:
    """The file of the module `name`, where there is one and it is the user's own."""
    top, *rest = name.split(".")
    spec = _spec(top) if top != _TUNER else None
    if spec is None:
        return None
    if rest:
        stems = [Path(place, *rest) for place in spec.submodule_search_locations or ()]
        files = [file for stem in stems for file in (stem / "__init__.py", Path(f"{stem}.py"))]
    else:
        files = [Path(spec.origin)] if spec.origin and spec.has_location else []
    return next((file for file in files if file.is_file() and _is_the_users(file)), None)


def _spec(top: str) -> ModuleSpec | None:
    """Where the module or package `top` is; to find that out runs nothing of it, as it has no parent."""
    try:
        return importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return None


def may_be_the_users(word: Path) -> bool:
    """Whether a word of a command line may name a program or config of the user's own.

    An absolute one may also be an interpreter or a launcher: these are known by their names, or their places.
    """
    return not word.is_absolute() or (word.suffix in _READ and not _is_installed(word))


def _is_the_users(file: Path) -> bool:
    return file.suffix == ".py" and not _is_installed(file)


def _is_installed(file: Path) -> bool:
    installed = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return bool(_LIBRARIES & set(file.parts)) or any(file.is_relative_to(place) for place in installed)


def revision_of_files(directory: Path, patterns: Sequence[str] = (), besides: Sequence[Path] = ()) -> str:
    """What identifies the files below `directory` that `files` names, and those `besides`.

    These are 12 hex digits, of their names and of what they hold; of one beyond 16 MiB of its size and time.
    """
    digest = hashlib.sha256()
    for file in sorted({*files(directory, patterns), *besides}):
        digest.update(os.path.relpath(file, directory).encode(errors="surrogateescape") + b"\0")
        size_and_time = _size_and_time(file)
        is_data = size_and_time[0] > _LARGE_BYTES
        digest.update(repr(size_and_time).encode() if is_data else _content(file))
    return digest.hexdigest()[:_DIGITS]


def files(directory: Path, patterns: Sequence[str] = ()) -> list[Path]:
    """The files that one of the glob `patterns` names, relative to `directory`, in a stable order.

    `**` stands for any directories except hidden ones, virtual environments, node_modules and __pycache__,
    which have to be named; a pattern that names a directory means the Python files below it. Without patterns
    they are the programs and configs that git tracks below `directory`, with the Python files that it does
    not ignore; without git, every Python file.
    """
    if not patterns:
        tracked = [file for file in _tracked(directory) if file.suffix in _READ or file.name in _READ]
        return sorted(tracked or files(directory, ["**/*.py"]))
    return sorted({file for pattern in patterns for file in _fitting(directory, pattern)})


def _fitting(directory: Path, pattern: str) -> Iterator[Path]:
    parts = Path(pattern).parts
    named = next((i for i, part in enumerate(parts) if any(sign in part for sign in _MAGIC)), len(parts))
    place, wanted = directory.joinpath(*parts[:named]), parts[named:]
    if place.is_file() and not wanted:
        yield place
    for file in _below(place, _is_searched):
        if _fits(file.relative_to(place).parts, wanted or ("**", "*.py")):
            yield file


def _fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return any(_fits(parts[skipped:], wanted[1:]) for skipped in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], wanted[0]) and _fits(parts[1:], wanted[1:])


def _tracked(directory: Path) -> list[Path]:
    """What git tracks below `directory`, and the Python files that are new; none without git."""
    listed = ["git", "-C", str(directory), "ls-files", "-z"]
    asked = [[*listed, "--recurse-submodules"], [*listed, "--others", "--exclude-standard", "--", "*.py"]]
    try:
        said = [subprocess.run(command, capture_output=True, check=True).stdout for command in asked]  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return []
    names = {os.fsdecode(name) for text in said for name in text.split(b"\0") if name}
    return [directory / name for name in names]


def _all(_: Path) -> bool:
    return True


def _is_searched(place: Path) -> bool:
    is_left_out = place.name.startswith(".") or place.name in _LEFT_OUT
    return not is_left_out and not (place / "pyvenv.cfg").exists()


def _below(directory: Path, is_searched: Callable[[Path], bool]) -> Iterator[Path]:
    """The files in `directory` and in those below it, in a stable order. Links to others are not followed."""
    for place, below, names in os.walk(directory):
        below[:] = sorted(name for name in below if is_searched(Path(place, name)))
        yield from (Path(place, name) for name in sorted(names))


def fingerprint_of_data(directory: Path, names: Iterable[str]) -> str:
    """What identifies the data of such `names` in a `directory` by name, size and time, unread.

    These are 12 hex digits, the same wherever `directory` is. Of data that is a directory it looks at the
    first 10,000 files, which takes a tenth of a second.
    """
    digest = hashlib.sha256()
    for name in names:
        path = directory / name
        for number, file in enumerate(_below(path, _all) if path.is_dir() else [path]):
            if number == _MOST_FILES:
                break
            called = Path(name, file.relative_to(path))
            digest.update(f"{called}\0{_size_and_time(file)}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()[:_DIGITS]


def _size_and_time(file: Path) -> tuple[int, int]:
    """Bytes and nanoseconds; -1 of a file that is not there."""
    try:
        found = file.stat()
    except OSError:
        return -1, -1
    return found.st_size, found.st_mtime_ns


def _content(file: Path) -> bytes:
    """The bytes of `file`; none where it is gone, or no file."""
    try:
        return file.read_bytes()
    except OSError:
        return b""
