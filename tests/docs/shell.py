"""Commands in documents, checked against the parsers that would get them. Nothing is run."""

import ast
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import typer

from autotune.cli.app import app
from lab.__main__ import app as lab
from r2gen import __main__ as trainer

from .pages import ROOT

_BIN = Path(sys.executable).parent
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
_OF_THE_SHELL = {"export", "source"}
_OTHERS = ("ray start", "wandb sync", "tensorboard", "optuna-dashboard", "mlflow server")


def lines(text: str) -> list[str]:
    """The commands in a block: a line each, or several that end in a backslash."""
    return [line for line in text.replace("\\\n", " ").splitlines() if words(line)]


def words(line: str) -> list[str]:
    """The words of a command, without comments and the variables set before it."""
    found = shlex.split(line, comments=True)
    while found and _ASSIGNMENT.fullmatch(found[0]):
        found.pop(0)
    return found


def check(line: str) -> None:
    """Fails if a command or one of its options does not exist."""
    given = words(line)
    match given:
        case ["autotune", *arguments] | ["python", "-m", "autotune", *arguments]:
            _typer(app, arguments)
        case ["python", "-m", "lab", *arguments]:
            _typer(lab, arguments)
        case ["r2gen", *arguments] | ["python", "-m", "r2gen", *arguments]:
            trainer._parser().parse_args(arguments)
        case ["python", script, *arguments] if script.startswith("benchmarks/"):
            unknown = {word for word in arguments if word.startswith("--")} - _options_of(ROOT / script)
            assert not unknown, f"{line}: {script} has no {unknown}"
        case ["make", *arguments]:
            _make(arguments)
        case [word, *_] if word in _OF_THE_SHELL:
            pass
        case ["pip", "install", *_] | ["python3", "-m", "venv", _]:
            pass
        case _:
            _other(line, given)


def _typer(commands: typer.Typer, arguments: list[str]) -> None:
    group = typer.main.get_command(commands)
    options = {option for parameter in group.params for option in parameter.opts}
    if arguments and arguments[0] in options:
        return
    context = group.make_context("any", [], resilient_parsing=True)
    name, command, rest = group.resolve_command(context, list(arguments))
    assert command is not None, f"{arguments[0]}: no such command"
    only_named = rest == ["--help"]
    command.make_context(name, rest, parent=context, resilient_parsing=only_named)


@cache
def _options_of(script: Path) -> set[str]:
    """What a script adds to its parser, read and not run: to import torch for it takes seconds."""
    calls = [
        node for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
    ]
    added = [call for call in calls if getattr(call.func, "attr", "") == "add_argument"]
    return {arg.value for call in added for arg in call.args if isinstance(arg, ast.Constant)}


def _make(arguments: list[str]) -> None:
    done = subprocess.run(
        ["make", "--dry-run", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^(PYTHON=)?\.venv/bin/\S+", done.stdout, re.MULTILINE)
    if started := re.search(r"^\.venv/bin/python -m autotune (.*)$", done.stdout, re.MULTILINE):
        _typer(app, shlex.split(started[1]))


def _other(line: str, given: list[str]) -> None:
    program = next((name for name in _OTHERS if given[: len(name.split())] == name.split()), None)
    assert program, f"{line}: not a command that documents may have"
    for word in given:
        option = word.partition("=")[0]
        if option.startswith("-"):
            assert re.search(rf"(?<![\w-]){re.escape(option)}\b", _help(program)), (
                f"{program} has no {option}"
            )


@cache
def _help(program: str) -> str:
    name, *rest = program.split()
    done = subprocess.run([_BIN / name, *rest, "--help"], capture_output=True, text=True, check=True)
    return done.stdout


def refused(line: str) -> bool:
    """Whether `check` refuses a command, in any way."""
    try:
        check(line)
    except (Exception, SystemExit):  # noqa: BLE001 - parsers of three libraries
        return True
    return False


def options() -> set[str]:
    """Every option of every command and script of the project."""
    found = {"--soak", "--help"}  # of pytest here, and of everything
    for commands in (app, lab):
        for command in typer.main.get_command(commands).commands.values():
            found |= {option for parameter in command.params for option in parameter.opts}
    for script in [*(ROOT / "benchmarks").glob("*.py"), ROOT / "r2gen" / "__main__.py"]:
        found |= _options_of(script)
    return found
