"""Turns the fields of requests into command-line options."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.export.formats import FORMATS
from autotune.sessions.requests import SESSION, option

SessionArgument = Annotated[Path, typer.Argument(help=SESSION)]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object")]

# The order of panels in a command's help; others follow.
_PANELS = ("", "What is tuned", "A command line", "Where it goes", "How long", "What wins", "How trials run")
_models = partial(option, panel="Models")
_prices = partial(option, panel="What it costs")


@dataclass(frozen=True)
class Trained:
    """Settings and limits of a whole training; `data` and `baseline` are only for a search space."""

    workdir: Path | None = option(
        "directory of checkpoints and records; default: in the session, or in runs/"
    )
    trial: int | None = option("trial of the session to train with; default: the winner", min=0)
    resume: bool = option("continue the training in the workdir, if there is one", False)
    retries: int = option("most retries in a row without any progress, after temporary faults", 3, min=0)
    data: Path | None = option("data set, if a space's workload is r2gen")
    baseline: Path | None = option("YAML file whose settings replace those of the search space")
    gpus_per_trial: float | None = option(
        "GPUs to train on, a share counts as 1; default: as in the session, or 1", min=0
    )
    wandb: str | None = option(
        "Weights & Biases: auto, online, offline or off; default: as the session, or auto"
    )
    tracker: list[str] | None = option("further tracker that logs the run: mlflow; default: the session's")
    tag: list[str] | None = option(
        "tag of the run in W&B, beside workload, device and precision; default: the session's"
    )


@dataclass(frozen=True)
class Priced:
    price_per_hour: float | None = _prices(
        "price of an hour on the machine; adds the cost of the full training"
    )
    price_per_kwh: float | None = _prices("price of a kWh that the GPU uses")
    currency: str = _prices("currency of the prices, such as EUR", "")


@dataclass(frozen=True)
class Models:
    precisions: str | None = _models("such as fp32,bf16; default: all that this machine can run")
    samples_per_model: int | None = _models(
        "training samples per model; default: as many as the existing models had, or a trial", min=1
    )
    epochs_per_model: int | None = _models("training epochs per model, instead of samples", min=1)
    seeds: int = _models("models per precision, each with its own seed; 1 decides nothing", 1, min=1)
    keep: float | None = _models(
        "share of the baseline's improvement to keep; default: the search's", min=0, max=1
    )


@dataclass(frozen=True)
class ExportRequest:
    output: Path | None = option(
        "file to write; default: best, with the format's suffix", None, "--output", "-o"
    )
    trial: int | None = option("trial to export; default: the winner", min=0)
    form: str | None = option(f"{', '.join(FORMATS)}; default: the workload's own", None, "--format")
    patch: Path | None = option("your own YAML or JSON file: the winner goes into a copy of it")


def grouped(command: Callable[..., int]) -> Callable[..., int]:
    """Expands dataclass arguments of `command` into an argument per option: typer cannot group options."""
    signature = inspect.signature(command, eval_str=True)
    groups = {
        name: sorted((one for one in fields(argument.annotation) if one.metadata), key=_place)
        for name, argument in signature.parameters.items()
        if is_dataclass(argument.annotation)
    }

    @functools.wraps(command)
    def call(**given: Any) -> int:
        made = {
            name: signature.parameters[name].annotation(**{one.name: given.pop(one.name) for one in options})
            for name, options in groups.items()
        }
        return command(**made, **given)

    single = [argument for name, argument in signature.parameters.items() if name not in groups]
    options = [_parameter(one) for group in groups.values() for one in group]
    call.__signature__ = signature.replace(parameters=[*single, *options])  # type: ignore[attr-defined]
    return call


def _place(field: Field[Any]) -> int:
    panel = field.metadata.get("option", {}).get("rich_help_panel") or ""
    return _PANELS.index(panel) if panel in _PANELS else len(_PANELS)


def _parameter(field: Field[Any]) -> Parameter:
    """Returns the typer parameter of a field; a switch has no `--no-` form."""
    says, names = field.metadata, field.metadata.get("names", ())
    if field.type is bool and not names:
        names = (f"--{field.name.replace('_', '-')}",)
    made = (
        typer.Argument(**says["argument"]) if "argument" in says else typer.Option(*names, **says["option"])
    )
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(
        field.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[field.type, made]
    )
