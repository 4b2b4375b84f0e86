"""Command-line options: names, limits and help texts for the fields of requests."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from autotune.sessions.requests import JudgeRequest, Probing, ResumeRequest, SearchRequest

_LARGEST_SEED = 2**31 - 1  # leaves room below NumPy's limit for the seeds of all runs

_what = partial(typer.Option, rich_help_panel="What is tuned")
_probed = partial(typer.Option, rich_help_panel="A command line")
_output = partial(typer.Option, rich_help_panel="Where it goes")
_budget = partial(typer.Option, rich_help_panel="How long")
_goal = partial(typer.Option, rich_help_panel="What wins")
_models = partial(typer.Option, rich_help_panel="Models")
_trials = partial(typer.Option, rich_help_panel="How trials run")
_prices = partial(typer.Option, rich_help_panel="What it costs")

_SESSION = typer.Argument(help="the session's directory")
SessionArgument = Annotated[Path, _SESSION]
_EVENTS = _output("--json", help="one JSON object per event, and nothing else")
_TIME = _budget(help="time limit, such as 90m or 2h")
Json = Annotated[bool, typer.Option("--json", help="print one JSON object")]


@dataclass(frozen=True)
class Trained:
    """Settings and limits of a whole training; `data` and `baseline` are only for a search space."""

    workdir: Path | None = None
    trial: int | None = None
    resume: bool = False
    retries: int = 3
    data: Path | None = None
    baseline: Path | None = None
    gpus_per_trial: float | None = None
    wandb: str | None = None
    tracker: list[str] | None = None
    tag: list[str] | None = None


@dataclass(frozen=True)
class Priced:
    price_per_hour: float | None = None
    price_per_kwh: float | None = None
    currency: str = ""


@dataclass(frozen=True)
class Models:
    """Models to train and compare, and the quality that they must keep."""

    precisions: str | None = None
    samples_per_model: int | None = None
    epochs_per_model: int | None = None
    seeds: int = 1
    keep: float | None = None


# An option for each field of a request, in the order of the help. The types and defaults are the request's,
# unless an annotation says otherwise.
_SCORED = {
    "score": _probed(help="the score that says how good your training is"),
    "maximize": _probed("--maximize", help="a higher score is better"),
    "minimize": _probed("--minimize", help="a lower score is better"),
    "yes": _probed("--yes", "-y", help="ask nothing, and take the likeliest score"),
}
_PROBED = {
    **_SCORED,
    "only": _probed(help="tune only these, of batch,lr,length,workers,precision,compile; default: all"),
}
_JUDGED = {
    **_SCORED,
    "keep": _goal(min=0, max=1, help="share of A's improvement to keep"),
    "within": _goal(min=0, help="instead of --keep: how much worse than A's the score may be"),
    "pairs": _budget(min=3, help="most pairs of trainings, each with a seed of its own"),
    "time": _TIME,
    "session": _output(help="directory of the trainings; name it again to continue them"),
    "as_json": _output("--json", help="print one JSON object"),
}
_SEARCHED = {
    "training": typer.Argument(
        metavar="[SPACE | -- COMMAND...]",
        help="a search space; or, behind --, the command line that starts your training",
    ),
    "data": _what(help="data set in R2Gen's layout; default: drawn X-rays"),
    "space": Annotated[
        str | None, _what(help="search space: a YAML file, cpu, gpu, gpu-small or laptop-8gb")
    ],
    "baseline": _what(help="YAML file with the settings you run today"),
    "model": _what(help="size of the R2Gen model: full or small"),
    "warm_start": _what(help="earlier session to learn from, with the same settings and hardware"),
    "skip_bad_samples": _what("--skip-bad-samples", help="leave out studies that cannot be used"),
    **_PROBED,
    "session": _output(help="directory of the search; default: a new one in runs/"),
    "wandb": _output(help="Weights & Biases: auto, online, offline or off"),
    "tracker": _output(help="further tracker that logs the runs: mlflow"),
    "tag": _output(help="tag of the runs in W&B, beside workload, device and precision"),
    "as_json": _EVENTS,
    "trials": _budget(min=1, help="configurations to try"),
    "time": _TIME,
    "worth": _budget(help="end once a trial costs more than it may save of so much training, such as 30h"),
    "samples": _budget(help="training samples per trial; auto: as many as the baseline needs to learn"),
    "keep": _goal(min=0, max=1, help="share of the baseline's improvement to keep"),
    "within": _goal(min=0, help="instead of --keep: how much worse than the baseline's the quality may be"),
    "promise": _goal(
        help="what a winner promises: same-quality (a shorter training) or same-training (only faster)"
    ),
    "select": _goal(help="what wins: same-quality, same-training or pareto"),
    "target": _goal(help="a quality to reach in the least time"),
    "finalists": _goal(min=1, help="most trials to confirm at the end"),
    "repeats": _goal(min=0, help="most seeds to confirm a winner with, 3 or more; 0: no confirmation"),
    "memory_fraction": _goal(min=0, max=1, help="largest share of the memory that a trial may use"),
    "gpus_per_trial": _trials(min=0, help="GPUs per trial, such as 0.25, 0.5 or 1"),
    "cpus_per_trial": _trials(min=1, help="CPUs per trial, if it uses no GPU"),
    "memory_limit": _trials(help="host memory limit per trial, such as 3GiB"),
    "stall_timeout": _trials(help="end a trial that makes no progress for this long, such as 10m"),
    "keep_checkpoints": _trials("--keep-checkpoints", help="keep the checkpoints of completed trials"),
    "address": _trials(help="address of a running Ray cluster"),
    "device_type": _trials(help="nodes of the cluster to use: a part of their device's name, such as A100"),
    "seed": _trials(min=0, max=_LARGEST_SEED, help="seed of the search"),
}
_RESUMED = {
    "session": _SESSION,
    "trials": typer.Option(min=0, help="additional trials to run"),
    "time": typer.Option(help="new time limit, counted from now"),
    "as_json": _EVENTS,
}
_TRAINED = {
    "workdir": typer.Option(
        help="directory of checkpoints and records; default: in the session, or in runs/"
    ),
    "trial": typer.Option(min=0, help="trial of the session to train with; default: the winner"),
    "resume": typer.Option("--resume", help="continue the training in the workdir, if there is one"),
    "retries": typer.Option(
        min=0, help="how often in a row to retry without any progress, after temporary faults"
    ),
    "data": typer.Option(help="data set, if a space's workload is r2gen"),
    "baseline": typer.Option(help="YAML file whose settings replace those of the search space"),
    "gpus_per_trial": typer.Option(
        min=0, help="GPUs to train on, a share counts as 1; default: as in the session, or 1"
    ),
    "wandb": typer.Option(
        help="Weights & Biases: auto, online, offline or off; default: as the session, or auto"
    ),
    "tracker": typer.Option(help="further tracker that logs the run: mlflow; default: the session's"),
    "tag": typer.Option(
        help="tag of the run in W&B, beside workload, device and precision; default: the session's"
    ),
}
_PRICED = {
    "price_per_hour": _prices(help="price of an hour on the machine; adds the cost of the full training"),
    "price_per_kwh": _prices(help="price of a kWh that the GPU uses"),
    "currency": _prices(help="currency of the prices, such as EUR"),
}
_COMPARED = {
    "precisions": _models(help="such as fp32,bf16; default: all that this machine can run"),
    "samples_per_model": _models(
        min=1, help="training samples per model; default: as many as the existing models had, or a trial"
    ),
    "epochs_per_model": _models(min=1, help="training epochs per model, instead of samples"),
    "seeds": _models(min=1, help="models per precision, each with its own seed; 1 decides nothing"),
    "keep": _models(min=0, max=1, help="share of the baseline's improvement to keep; default: the search's"),
}
OPTIONS: Mapping[type, Mapping[str, Any]] = {
    Probing: _PROBED,
    JudgeRequest: _JUDGED,
    SearchRequest: _SEARCHED,
    ResumeRequest: _RESUMED,
    Trained: _TRAINED,
    Priced: _PRICED,
    Models: _COMPARED,
}


def grouped(command: Callable[..., int]) -> Callable[..., int]:
    """Expands dataclass arguments of `command` into one argument per field: typer cannot group options."""
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
    options = [argument for group in groups.values() for argument in _arguments(group)]
    call.__signature__ = signature.replace(parameters=[*single, *options])  # type: ignore[attr-defined]
    return call


def _arguments(group: type) -> list[Parameter]:
    by_name = {field.name: field for field in fields(group)}
    return [_argument(by_name[name], option) for name, option in OPTIONS[group].items()]


def _argument(field: Field[Any], option: Any) -> Parameter:
    annotation = option if get_origin(option) is Annotated else Annotated[field.type, option]
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
