"""The rooms that do no I/O call nothing that does: an import contract does not see what needs no import."""

import ast
import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILTINS = {"open", "print", "input", "breakpoint", "__import__", "exec", "eval"}
METHODS = {  # of a path, whoever has passed it in
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "touch", "mkdir", "unlink", "rmdir"),
    *("rename", "exists", "is_file", "is_dir", "iterdir", "glob", "rglob", "stat", "resolve"),
}
CONTRACT = configparser.ConfigParser()
CONTRACT.read(ROOT / ".importlinter")
PURE = CONTRACT["importlinter:contract:pure"]
EXCEPTED = {line.split(" -> ")[0] for line in PURE["ignore_imports"].split("\n") if line}


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


FILES = {
    name_of(file): file
    for room in PURE["source_modules"].split()
    for file in sorted(ROOT.joinpath(*room.split(".")).rglob("*.py"))
}


def effects(source: str) -> list[str]:
    """What a module calls that reads, writes, or draws from the state that `random` keeps for everybody."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in BUILTINS:
                found.append(name)
            case ast.Call(func=ast.Attribute(attr=name)) if name in METHODS:
                found.append(f".{name}")
            case ast.Attribute(value=ast.Name(id="random"), attr=name) if name != "Random":
                found.append(f"random.{name}")
    return found


@pytest.mark.parametrize("name", sorted(FILES.keys() - EXCEPTED))
def test_a_pure_module_has_no_effects(name):
    assert effects(FILES[name].read_text(encoding="utf-8")) == []


def test_every_exception_is_a_module_that_needs_it():
    assert FILES.keys() >= EXCEPTED


# What reads the wall clock, which may jump, with the reason why no figure of a trial comes from it.
WALL_CLOCK = {
    "cli.train": "the name of a directory",
    "display.console": "when a line of JSON was printed",
    "display.snapshot": "how long a trial of another process has run, for the screen",
    "sessions.judge": "the name of a directory",
    "sessions.start": "the name of a directory",
    "storage.provenance": "when a session was begun",
    "system.nvml": "what the driver counts its samples by",
    "trackers.tensorboard": "what TensorBoard shows",
    "training.whole": "when an event happened",
    "trials.attempt": "beside the monotonic clock, for the screen of another process",
    "workloads.command.scores": "when a file was written, which is clamped to the time between two looks",
}


def test_no_figure_comes_from_the_wall_clock():
    clock = re.compile(r"\btime\.time(_ns)?\(|datetime\.(now|utcnow|today)\(")
    read = {file for file in ROOT.glob("autotune/**/*.py") if clock.search(file.read_text("utf-8"))}
    assert {name_of(file).removeprefix("autotune.") for file in read} == WALL_CLOCK.keys()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("print(1)", ["print"]),
        ("def f(path):\n    return path.read_text()", [".read_text"]),
        ("with open(name) as file: pass", ["open"]),
        ("random.Random(7).random()", []),
        ("random.random()", ["random.random"]),
        ("text.replace('a', 'b')", []),
    ],
)
def test_what_has_an_effect_is_seen(source, found):
    assert effects(source) == found
