"""The command line: what every command takes. What runs a search is imported when one begins."""

import inspect
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from autotune import cli_session, cli_tables, completion, units
from autotune.cli_session import SessionArgument
from autotune.report.model import FORMATS, SAMPLES
from autotune.sections import PROMISES, Select
from autotune.store import WANDB_MODES, Options

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Finds the training settings that are fastest on this hardware at the same quality.",
)

_LARGEST_SEED = 2**31 - 1  # of NumPy's generators, with room for a seed of its own in every run

_what = partial(typer.Option, rich_help_panel="What is tuned")
_budget = partial(typer.Option, rich_help_panel="How long")
_goal = partial(typer.Option, rich_help_panel="What wins")
_trials = partial(typer.Option, rich_help_panel="How trials run")
_output = partial(typer.Option, rich_help_panel="Where it goes")

Json = Annotated[bool, _output("--json", help="one JSON object per event, and nothing else")]


@app.command()
def search(  # noqa: PLR0917 - typer makes an option of every argument
    data: Annotated[Path | None, _what(help="data set in R2Gen's layout; none: drawn X-rays")] = None,
    session: Annotated[Path | None, _output(help="directory to keep the search in")] = None,
    space: Annotated[
        str | None,
        _what(help="search space: a YAML file, cpu, gpu or laptop-8gb", autocompletion=completion.spaces),
    ] = None,
    baseline: Annotated[Path | None, _what(help="YAML file with the settings you run today")] = None,
    model: Annotated[
        str | None, _what(help="size of the R2Gen model: full or small", autocompletion=completion.models)
    ] = None,
    trials: Annotated[int | None, _budget(min=1, help="configurations to try")] = None,
    time: Annotated[str | None, _budget(help="time limit, such as 90m or 2h")] = None,
    samples: Annotated[
        str | None, _budget(help="training samples per trial; auto: until the baseline has learnt")
    ] = None,
    keep: Annotated[float | None, _goal(min=0, max=1, help="share of the quality to keep")] = None,
    promise: Annotated[
        str | None,
        _goal(
            help="same-quality (sooner) or same-training (only faster): what a winner means",
            autocompletion=completion.one_of(tuple(PROMISES)),
        ),
    ] = None,
    select: Annotated[
        str | None,
        _goal(
            help="the rule itself: time-to-quality, same-training, fastest or pareto",
            autocompletion=completion.one_of(get_args(Select)),
        ),
    ] = None,
    target: Annotated[float | None, _goal(help="quality to reach, for time-to-quality")] = None,
    finalists: Annotated[int | None, _goal(min=1, help="trials to repeat in the end")] = None,
    repeats: Annotated[int | None, _goal(min=0, help="of each of them; 0: do not confirm")] = None,
    memory_fraction: Annotated[
        float | None, _goal(min=0, max=1, help="share of the memory to use at most")
    ] = None,
    warm_start: Annotated[
        Path | None,
        _what(
            help="earlier session to learn from: same settings, data and hardware",
            autocompletion=completion.sessions,
        ),
    ] = None,
    gpus_per_trial: Annotated[float | None, _trials(min=0, help="GPUs of a trial: 0.25, 0.5, 1")] = None,
    cpus_per_trial: Annotated[int | None, _trials(min=1, help="CPUs of a trial without GPU")] = None,
    memory_limit: Annotated[str | None, _trials(help="host memory of a trial, such as 3GiB")] = None,
    stall_timeout: Annotated[str | None, _trials(help="kill a trial silent for so long")] = None,
    skip_bad_samples: Annotated[bool, _what("--skip-bad-samples", help="leave bad studies out")] = False,
    keep_checkpoints: Annotated[
        bool, _trials("--keep-checkpoints", help="keep those of trials that completed")
    ] = False,
    wandb: Annotated[
        str, _output(help="auto, online, offline or off", autocompletion=completion.one_of(WANDB_MODES))
    ] = "auto",
    address: Annotated[str | None, _trials(help="address of a running Ray cluster")] = None,
    seed: Annotated[int, _trials(min=0, max=_LARGEST_SEED, help="seed of the search")] = 0,
    as_json: Json = False,
) -> int:
    """Search for the fastest settings. Example: autotune search --data data/iu_xray --trials 40 --time 2h"""
    from autotune import cli_start, prepare  # noqa: PLC0415 - they ask the machine, which `status` does not

    cli_start.check_wandb(wandb)
    machine, gpus = cli_start.machine(address, gpus_per_trial)
    options = Options(
        gpus_per_trial=gpus,
        cpus_per_trial=prepare.cpus_per_trial(cpus_per_trial, machine),
        memory_limit_bytes=units.size_bytes(memory_limit) if memory_limit else None,
        stall_timeout_s=units.seconds(stall_timeout) if stall_timeout else None,
        wandb=wandb,
        address=address,
        seed=seed,
        warm_start=str(warm_start.resolve()) if warm_start else None,
        keep_checkpoints=keep_checkpoints,
    )
    budget = {"trials": trials, "time": time, **prepare.samples(samples)}
    overrides: dict[str, dict[str, Any]] = {
        "budget": {**budget, "finalists": finalists, "repeats": repeats},
        "objective": {"keep": keep, "select": prepare.select(promise, select), "target": target},
        "limits": {"memory_fraction": memory_fraction},
    }
    given = cli_start.Given(space, overrides, model, baseline, data, skip_bad_samples)
    return cli_start.search(session, given, options, machine, as_json=as_json)


@app.command()
def resume(
    session: SessionArgument,
    trials: Annotated[int, typer.Option(min=0, help="so many trials more")] = 0,
    time: Annotated[str | None, typer.Option(help="a new time limit, from now")] = None,
    as_json: Json = False,
) -> int:
    """Go on with a search after a kill, a reboot or Ctrl-C. Example: autotune resume runs/iu --trials 20"""
    from autotune import cli_start  # noqa: PLC0415 - as above

    time_s = units.seconds(time) if time else None
    return cli_start.resume(session, more=trials, time_s=time_s, as_json=as_json)


@app.command()
def compare(
    session: SessionArgument,
    precisions: Annotated[
        str | None, typer.Option(help="such as fp32,bf16; none: all that this machine can run")
    ] = None,
    samples_per_model: Annotated[
        int | None, typer.Option(min=1, help="training samples of each; none: as many as a trial had")
    ] = None,
) -> int:
    """Train and score a model per precision. Example: autotune compare runs/iu --precisions fp32,bf16"""
    from autotune import cli_compare  # noqa: PLC0415 - as above

    return cli_compare.compare(session, precisions, samples_per_model)


@app.command()
def report(
    session: SessionArgument,
    form: Annotated[
        str, typer.Option("--format", help="html, json or md", autocompletion=completion.one_of(FORMATS))
    ] = "html",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="file to write, - for standard output; none: in the session"),
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="test studies to show, where models were compared")] = (
        SAMPLES
    ),
) -> int:
    """Write all that a session has found into one file. Example: autotune report runs/iu --format md -o -"""
    from autotune import cli_report  # noqa: PLC0415 - as above

    return cli_report.report(session, form, output, samples)


app.command()(cli_session.status)
app.command()(cli_session.export)
app.command()(cli_tables.record)
app.command()(cli_tables.replay)


@app.command()
def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="file to write; none: print it")
    ] = None,
) -> int:
    """Write the JSON Schema of search spaces, for editors. Example: autotune schema -o schema.json"""
    from autotune import schema as schemas  # noqa: PLC0415 - as above

    return schemas.write(output)


app.command()(cli_session.doctor)


for command in app.registered_commands:  # the list of commands has a line with the example, its help two
    command.short_help = inspect.getdoc(command.callback)
    command.help = (command.short_help or "").replace(" Example: ", "\n\nExample: ")
