"""Options in groups, as typer sees them and as a command gets them."""

import inspect
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer
from typer.testing import CliRunner

from autotune.cli.options import OPTIONS, grouped


@dataclass(frozen=True)
class Small:
    size: Annotated[int, typer.Option(min=1, help="how large")] = 3
    loud: Annotated[bool, typer.Option("--shout")] = False


@dataclass(frozen=True)
class Place:
    root: Path | None = None


def run(*arguments):
    """What a command with two groups and an argument gets, or what typer says."""
    app, got = typer.Typer(), []

    @app.command()
    @grouped
    def command(name: str, small: Small, place: Place) -> int:
        """Takes all of it."""
        got.append((name, small, place))
        return 0

    done = CliRunner().invoke(app, arguments)
    return got[0] if got else done.output


def test_every_field_is_an_option_and_a_command_gets_the_groups():
    assert run("a") == ("a", Small(), Place())
    assert run("a", "--size", "7", "--shout", "--root", "x") == ("a", Small(7, True), Place(Path("x")))


def test_an_option_of_a_group_is_checked_and_explained_as_any_other():
    assert "greater than or equal to 1" in run("a", "--size", "0")
    said = run("--help")
    assert "Takes all of it." in said
    assert "how large" in said
    assert "--small" not in said


def test_every_field_of_a_request_has_an_option():
    for request, options in OPTIONS.items():
        assert options.keys() == {field.name for field in fields(request)}


def test_what_is_grouped_keeps_its_name_and_its_words():
    def command(small: Small) -> int:
        """What it does."""
        return small.size

    made = grouped(command)
    assert (made.__name__, made.__doc__) == ("command", "What it does.")
    assert list(inspect.signature(made).parameters) == ["size", "loud"]
    assert made(size=5, loud=True) == 5
