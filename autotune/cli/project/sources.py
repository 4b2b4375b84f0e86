"""The Python files of a project: which of them trains, and what that one imports from the others."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune.cli.project import syntax
from autotune.core.errors import InputError

_MOST_FILES, _MOST_BYTES = 2000, 2**20
_PASSED_OVER = {
    *("tests", "test", "docs", "notebooks", "examples", "build", "dist", "node_modules", "site-packages"),
    *("venv", "env", "data", "datasets", "outputs", "runs", "wandb"),
}
_NAMED = (
    (r"train", 4),
    (r"(main_?|run_?)?((pre|re)?train|finetune|fine_tune)\w*", 3),
    (r"main\w*|run\w*", 2),
)
_PARSERS = ("ArgumentParser", "HfArgumentParser", "LightningCLI", "main", "command", "exec")
_TRAINING = ("backward", "fit", "train", "Trainer", "LightningCLI", "Accelerator")
_LEAST, _LEAD = 4, 2  # points for being named at all, and more than the next one has


@dataclass(frozen=True)
class Source:
    """A file of a project, by its `path` in it."""

    path: Path
    tree: ast.Module


def chosen(directory: Path, script: Path | None) -> Path:
    """The script that trains, by its path in `directory`; raises InputError where it has to be named."""
    if script is not None:
        return _said(directory, script)
    found = sorted(_candidates(directory), key=lambda one: (-one[0], str(one[1])))
    if not found:
        raise InputError(f"{directory}: no script that trains was found: name it with --script")
    leaders = [path for points, path in found if points > found[0][0] - _LEAD]
    if len(leaders) > 1:
        raise InputError(
            f"{directory}: several scripts may be the one that trains: name it with --script: "
            f"{', '.join(map(str, leaders))}"
        )
    return leaders[0]


def _said(directory: Path, script: Path) -> Path:
    """A script may be given from here, or from the project's directory."""
    for file in (directory / script, script):
        if file.is_file():
            if not file.resolve().is_relative_to(directory.resolve()):
                raise InputError(f"--script: a file in {directory}: got {script}")
            return file.resolve().relative_to(directory.resolve())
    raise InputError(f"--script {script}: there is no such file in {directory}")


def _candidates(directory: Path) -> Iterator[tuple[int, Path]]:
    """Scripts that may be the one, each with how much speaks for it."""
    for path in _files(directory):
        tree = _tree(directory / path)
        if tree is not None and (points := _points(path, tree)) >= _LEAST:
            yield points, path


def _files(directory: Path) -> list[Path]:
    """Every Python file of the project itself, nearest first."""
    found: list[Path] = []
    waiting = [directory]
    while waiting and len(found) < _MOST_FILES:
        here = waiting.pop(0)
        try:
            entries = sorted(here.iterdir())
        except OSError:
            continue
        found += [e.relative_to(directory) for e in entries if e.suffix == ".py" and e.is_file()]
        waiting += [e for e in entries if e.is_dir() and not e.is_symlink() and not _is_passed_over(e)]
    return found


def _is_passed_over(place: Path) -> bool:
    return place.name in _PASSED_OVER or place.name.startswith(".") or (place / "pyvenv.cfg").exists()


def _points(path: Path, tree: ast.Module) -> int:
    """How much speaks for a file being the one that is run to train; 0 where it is not run at all."""
    if not _is_run(tree):
        return 0
    named = next((points for name, points in _NAMED if re.fullmatch(name, path.stem)), 0)
    takes_settings = 2 if any(syntax.calls(tree, *_PARSERS)) or is_hydra(tree) else 0
    trains = 2 if any(syntax.calls(tree, *_TRAINING)) else 0
    return named + takes_settings + trains - (len(path.parts) - 1) if named or trains else 0


def _is_run(tree: ast.Module) -> bool:
    """Whether a file does something when it is run, besides defining what others import."""
    return any(
        (isinstance(node, ast.If) and "__main__" in syntax.strings(node.test))
        or isinstance(node, ast.For | ast.While)
        or (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and syntax.last(node.value) != "append"
        )
        for node in tree.body
    )


def is_hydra(tree: ast.Module) -> bool:
    """Whether it is started by Hydra."""
    return any(syntax.dotted(call).endswith("hydra.main") for call in syntax.calls(tree, "main"))


def _tree(file: Path) -> ast.Module | None:
    try:
        if file.stat().st_size > _MOST_BYTES:
            return None
        return syntax.parsed(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def read(directory: Path, script: Path) -> list[Source]:
    """The script, and then all that it imports from the project; raises InputError where it is no Python."""
    tree = _tree(directory / script)
    if tree is None:
        raise InputError(f"{directory / script}: cannot be read as Python")
    found = {script: Source(script, tree)}
    waiting = [found[script]]
    while waiting and len(found) < _MOST_FILES:
        for path in located(directory, script, _modules(waiting.pop(0))):
            if path not in found and (tree := _tree(directory / path)) is not None:
                found[path] = Source(path, tree)
                waiting.append(found[path])
    return list(found.values())


def located(directory: Path, script: Path, modules: Iterable[str]) -> Iterator[Path]:
    """The files of the project that `modules` are: next to the script, or from the project's top."""
    for module in modules:
        for base in dict.fromkeys((script.parent, Path())):
            stem = base.joinpath(*module.split("."))
            for path in (stem.with_suffix(".py"), stem / "__init__.py"):
                if (directory / path).is_file():
                    yield path


def _modules(source: Source) -> Iterator[str]:
    """The names of all modules that may be imported; of `from a import b` both `a` and `a.b`."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            parents = source.path.parent.parts
            above = parents[: len(parents) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from filter(None, [module])
            yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names)
