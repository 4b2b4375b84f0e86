"""Finds the training script of a project, and the modules that it imports."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune.core.errors import InputError
from autotune.init import syntax

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
_LEAST, _LEAD = 4, 2  # least points of a candidate, and least lead over the next


@dataclass(frozen=True)
class Source:
    """Python file, by its `path` in the project."""

    path: Path
    tree: ast.Module


def chosen(directory: Path, script: Path | None) -> Path:
    """Returns the training script by its path in `directory`; raises InputError if it is not clear."""
    if script is not None:
        return _given(directory, script)
    candidates = sorted(_candidates(directory), key=lambda one: (-one[0], str(one[1])))
    if not candidates:
        raise InputError(f"{directory}: no script that trains was found: name it with --script")
    leaders = [path for points, path in candidates if points > candidates[0][0] - _LEAD]
    if len(leaders) > 1:
        raise InputError(
            f"{directory}: several scripts may be the one that trains: name it with --script: "
            f"{', '.join(map(str, leaders))}"
        )
    return leaders[0]


def _given(directory: Path, script: Path) -> Path:
    """Returns the project path of a script given relative to the project or to the working directory."""
    for file in (directory / script, script):
        if file.is_file():
            if not file.resolve().is_relative_to(directory.resolve()):
                raise InputError(f"--script: a file in {directory}: got {script}")
            return file.resolve().relative_to(directory.resolve())
    raise InputError(f"--script {script}: there is no such file in {directory}")


def _candidates(directory: Path) -> Iterator[tuple[int, Path]]:
    """Yields points and path of candidates for the training script."""
    for path in _files(directory):
        tree = _tree(directory / path)
        if tree is not None and (points := _points(path, tree)) >= _LEAST:
            yield points, path


def _files(directory: Path) -> list[Path]:
    """Returns the Python files of the project itself, breadth first."""
    files: list[Path] = []
    waiting = [directory]
    while waiting and len(files) < _MOST_FILES:
        here = waiting.pop(0)
        try:
            entries = sorted(here.iterdir())
        except OSError:
            continue
        files += [e.relative_to(directory) for e in entries if e.suffix == ".py" and e.is_file()]
        waiting += [e for e in entries if e.is_dir() and not e.is_symlink() and not _is_passed_over(e)]
    return files


def _is_passed_over(place: Path) -> bool:
    return place.name in _PASSED_OVER or place.name.startswith(".") or (place / "pyvenv.cfg").exists()


def _points(path: Path, tree: ast.Module) -> int:
    """Returns points for a file being the training script; 0 if it is not run at all."""
    if not _is_run(tree):
        return 0
    named = next((points for name, points in _NAMED if re.fullmatch(name, path.stem)), 0)
    takes_settings = 2 if any(syntax.calls(tree, *_PARSERS)) or is_hydra(tree) else 0
    trains = 2 if any(syntax.calls(tree, *_TRAINING)) else 0
    return named + takes_settings + trains - (len(path.parts) - 1) if named or trains else 0


def _is_run(tree: ast.Module) -> bool:
    """Returns True if a file does more than define things when it is run."""
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
    """Returns True if the script uses `hydra.main`."""
    return any(syntax.dotted(call).endswith("hydra.main") for call in syntax.calls(tree, "main"))


def _tree(file: Path) -> ast.Module | None:
    try:
        if file.stat().st_size > _MOST_BYTES:
            return None
        return syntax.parsed(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def read(directory: Path, script: Path) -> list[Source]:
    """Returns the script and all project files that it imports; raises InputError if it does not parse."""
    tree = _tree(directory / script)
    if tree is None:
        raise InputError(f"{directory / script}: cannot be read as Python")
    sources = {script: Source(script, tree)}
    waiting = [sources[script]]
    while waiting and len(sources) < _MOST_FILES:
        for path in located(directory, script, _modules(waiting.pop(0))):
            if path not in sources and (tree := _tree(directory / path)) is not None:
                sources[path] = Source(path, tree)
                waiting.append(sources[path])
    return list(sources.values())


def located(directory: Path, script: Path, modules: Iterable[str]) -> Iterator[Path]:
    """Yields the project files of `modules`, next to the script or from the top directory."""
    for module in modules:
        for base in dict.fromkeys((script.parent, Path())):
            stem = base.joinpath(*module.split("."))
            for path in (stem.with_suffix(".py"), stem / "__init__.py"):
                if (directory / path).is_file():
                    yield path


def _modules(source: Source) -> Iterator[str]:
    """Yields the modules that may be imported; `from a import b` gives `a` and `a.b`."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            parents = source.path.parent.parts
            above = parents[: len(parents) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from filter(None, [module])
            yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names)
