"""Options in groups, as typer sees them and as a command gets them."""

import inspect
from dataclasses import fields

import typer
from typer.testing import CliRunner

from autotune.cli.options import ExportRequest, Models, Priced, Trained, grouped
from autotune.sessions.requests import JudgeRequest, Probing, ResumeRequest, SearchRequest


def run(*arguments):
    """Returns what a command with two groups and an argument gets, or what typer prints."""
    app, got = typer.Typer(), []

    @app.command()
    @grouped
    def command(name: str, models: Models, priced: Priced) -> int:
        """Takes all of it."""
        got.append((name, models, priced))
        return 0

    done = CliRunner().invoke(app, arguments)
    return got[0] if got else done.output


def test_every_field_is_an_option_and_a_command_gets_the_groups():
    assert run("a") == ("a", Models(), Priced())
    given = run("a", "--seeds", "7", "--keep", "0.5", "--currency", "EUR")
    assert given == ("a", Models(seeds=7, keep=0.5), Priced(currency="EUR"))


def test_an_option_of_a_group_is_checked_and_explained_as_any_other():
    assert "greater than or equal to 1" in run("a", "--seeds", "0")
    said = run("--help")
    assert "Takes all of it." in said
    assert "training epochs per" in said
    assert "--models" not in said


def test_every_field_of_a_request_is_an_option():
    of_search = (JudgeRequest, Probing, ResumeRequest, SearchRequest)
    for request in (ExportRequest, Models, Priced, Trained, *of_search):
        others = {field.name for field in fields(request) if not field.metadata}
        assert others == ({"content"} if request is SearchRequest else set())


def test_a_grouped_command_keeps_its_name_and_its_docstring():
    def command(priced: Priced) -> int:
        """What it does."""
        return len(priced.currency)

    made = grouped(command)
    assert (made.__name__, made.__doc__) == ("command", "What it does.")
    assert list(inspect.signature(made).parameters) == ["price_per_hour", "price_per_kwh", "currency"]
    assert made(price_per_hour=None, price_per_kwh=None, currency="EUR") == 3
