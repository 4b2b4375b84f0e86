"""Command-line options, in groups."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

_LARGEST_SEED = 2**31 - 1  # leaves room below NumPy's limit for the seeds of all runs

_what = partial(typer.Option, rich_help_panel="What is tuned")
_probed = partial(typer.Option, rich_help_panel="A command line")
_output = partial(typer.Option, rich_help_panel="Where it goes")
_budget = partial(typer.Option, rich_help_panel="How long")
_goal = partial(typer.Option, rich_help_panel="What wins")
_models = partial(typer.Option, rich_help_panel="Models")
_trials = partial(typer.Option, rich_help_panel="How trials run")

_prices = partial(typer.Option, rich_help_panel="What it costs")

Json = Annotated[bool, _output("--json", help="one JSON object per event, and nothing else")]


@dataclass(frozen=True)
class Tuned:
    """The search space and its baseline; in all groups, None means not given."""

    training: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SPACE | -- COMMAND...]",
            help="a search space; or, behind --, the command line that starts your training",
        ),
    ] = None
    data: Annotated[Path | None, _what(help="data set in R2Gen's layout; default: drawn X-rays")] = None
    space: Annotated[
        str | None,
        _what(
            help="search space: a YAML file, cpu, gpu, gpu-small or laptop-8gb",
        ),
    ] = None
    baseline: Annotated[Path | None, _what(help="YAML file with the settings you run today")] = None
    model: Annotated[str | None, _what(help="size of the R2Gen model: full or small")] = None
    warm_start: Annotated[
        Path | None,
        _what(
            help="earlier session to learn from: same settings, same hardware",
        ),
    ] = None
    skip_bad_samples: Annotated[
        bool, _what("--skip-bad-samples", help="leave out studies that cannot be used")
    ] = False


@dataclass(frozen=True)
class Scored:
    """The user's choice of the score of a command line."""

    score: Annotated[str | None, _probed(help="the score that says how good your training is")] = None
    maximize: Annotated[bool, _probed("--maximize", help="a higher score is better")] = False
    minimize: Annotated[bool, _probed("--minimize", help="a lower score is better")] = False
    yes: Annotated[bool, _probed("--yes", "-y", help="ask nothing, and take the likeliest score")] = False


@dataclass(frozen=True)
class Probed(Scored):
    """The user's choices for the command line of a training."""

    only: Annotated[
        str | None, _probed(help="what is tuned, of batch,lr,length,workers,precision,compile; default: all")
    ] = None


@dataclass(frozen=True)
class Judged:
    """Options of `judge`: what the change has to show, and how long it may take."""

    keep: Annotated[float | None, _goal(min=0, max=1, help="share to keep of what A gains")] = None
    within: Annotated[
        float | None, _goal(min=0, help="instead of --keep: how much worse than A's the score may be")
    ] = None
    pairs: Annotated[int, _budget(min=3, help="most trainings of each, with a seed for each pair")] = 8
    time: Annotated[str | None, _budget(help="time limit, such as 90m or 2h")] = None
    session: Annotated[Path | None, _output(help="directory of the trainings, to continue them")] = None
    as_json: Annotated[bool, _output("--json", help="print one JSON object")] = False


@dataclass(frozen=True)
class OutputOptions:
    """Location and format of a search's output."""

    session: Annotated[Path | None, _output(help="directory of the search; default: a new one in runs/")] = (
        None
    )
    wandb: Annotated[str, _output(help="auto, online, offline or off")] = "auto"
    tracker: Annotated[list[str] | None, _output(help="further tracker that logs the runs: mlflow")] = None
    tag: Annotated[
        list[str] | None, _output(help="tag of the runs in W&B, beside workload, device and precision")
    ] = None
    as_json: Json = False


@dataclass(frozen=True)
class LengthOptions:
    """Length of a search and of its trials."""

    trials: Annotated[int | None, _budget(min=1, help="configurations to try")] = None
    time: Annotated[str | None, _budget(help="time limit, such as 90m or 2h")] = None
    samples: Annotated[
        str | None, _budget(help="training samples per trial; auto: until the baseline has learnt")
    ] = None


@dataclass(frozen=True)
class Goal:
    """Rule for the winner, and the evidence that it takes."""

    keep: Annotated[float | None, _goal(min=0, max=1, help="share to keep of what the baseline gains")] = None
    within: Annotated[
        float | None,
        _goal(min=0, help="instead of --keep: how much worse than the baseline's the quality may be"),
    ] = None
    promise: Annotated[
        str | None,
        _goal(
            help="what a winner promises: same-quality (a shorter training) or same-training (only faster)",
        ),
    ] = None
    select: Annotated[
        str | None,
        _goal(
            help="what wins: same-quality, same-training or pareto",
        ),
    ] = None
    target: Annotated[float | None, _goal(help="a quality to reach in the least time")] = None
    finalists: Annotated[int | None, _goal(min=1, help="most trials to confirm at the end")] = None
    repeats: Annotated[
        int | None, _goal(min=0, help="most seeds of winner and baseline, 3 or more; 0: do not confirm")
    ] = None
    memory_fraction: Annotated[
        float | None, _goal(min=0, max=1, help="largest share of the memory to use")
    ] = None


@dataclass(frozen=True)
class TrialOptions:
    """Resources and limits of each trial."""

    gpus_per_trial: Annotated[float | None, _trials(min=0, help="GPUs per trial, such as 0.25, 0.5 or 1")] = (
        None
    )
    cpus_per_trial: Annotated[int | None, _trials(min=1, help="CPUs per trial that uses no GPU")] = None
    memory_limit: Annotated[str | None, _trials(help="host memory limit per trial, such as 3GiB")] = None
    stall_timeout: Annotated[
        str | None, _trials(help="end a trial that has been silent for this long, such as 10m")
    ] = None
    keep_checkpoints: Annotated[
        bool, _trials("--keep-checkpoints", help="keep the checkpoints of completed trials")
    ] = False
    address: Annotated[str | None, _trials(help="address of a running Ray cluster")] = None
    seed: Annotated[int, _trials(min=0, max=_LARGEST_SEED, help="seed of the search")] = 0


@dataclass(frozen=True)
class Trained:
    """Settings and limits of a whole training; `data` and `baseline` go with a search space."""

    workdir: Annotated[
        Path | None,
        typer.Option(help="directory of checkpoints and records; default: in the session, or in runs/"),
    ] = None
    trial: Annotated[
        int | None, typer.Option(min=0, help="trial of the session to train with; default: the winner")
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="continue the training in the workdir, if there is one")
    ] = False
    retries: Annotated[
        int, typer.Option(min=0, help="how often to retry after a temporary fault without progress")
    ] = 3
    data: Annotated[Path | None, typer.Option(help="data set, if a space's workload is r2gen")] = None
    baseline: Annotated[
        Path | None, typer.Option(help="YAML file with the settings to train with, for a space")
    ] = None
    gpus_per_trial: Annotated[
        float | None,
        typer.Option(min=0, help="GPUs to train on, a share as the whole; default: as in the session, or 1"),
    ] = None
    wandb: Annotated[
        str | None,
        typer.Option(
            help="auto, online, offline or off; default: as the session, or auto",
        ),
    ] = None
    tracker: Annotated[
        list[str] | None,
        typer.Option(help="further tracker that logs the run: mlflow; default: the session's"),
    ] = None
    tag: Annotated[
        list[str] | None,
        typer.Option(
            help="tag of the run in W&B, beside workload, device and precision; default: the session's"
        ),
    ] = None


@dataclass(frozen=True)
class Priced:
    """Prices for the cost of a training."""

    price_per_hour: Annotated[
        float | None, _prices(help="price of an hour on the machine; adds the cost of the full training")
    ] = None
    price_per_kwh: Annotated[float | None, _prices(help="price of a kWh that the GPU uses")] = None
    currency: Annotated[str, _prices(help="currency of the prices, such as EUR")] = ""


@dataclass(frozen=True)
class Models:
    """Models to train and compare, and the quality that they must keep."""

    precisions: Annotated[
        str | None,
        _models(help="such as fp32,bf16; default: all that this machine can run"),
    ] = None
    samples_per_model: Annotated[
        int | None,
        _models(
            min=1, help="training samples per model; default: as many as the existing models had, or a trial"
        ),
    ] = None
    epochs_per_model: Annotated[int | None, _models(min=1, help="instead: training epochs per model")] = None
    seeds: Annotated[
        int, _models(min=1, help="models per precision, each with its own seed; 1 decides nothing")
    ] = 1
    keep: Annotated[
        float | None,
        _models(min=0, max=1, help="share of the baseline's quality to keep; default: the search's"),
    ] = None


def grouped(command: Callable[..., int]) -> Callable[..., int]:
    """Expands dataclass arguments of `command` into one argument per field.

    typer makes an option of every argument, and knows no groups.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: argument.annotation
        for name, argument in signature.parameters.items()
        if is_dataclass(argument.annotation)
    }

    @functools.wraps(command)
    def call(**given: Any) -> int:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        return command(**made, **given)

    single = [argument for name, argument in signature.parameters.items() if name not in groups]
    options = [_argument(field) for group in groups.values() for field in fields(group)]
    call.__signature__ = signature.replace(parameters=[*single, *options])  # type: ignore[attr-defined]
    return call


def _argument(field: Field[Any]) -> Parameter:
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
