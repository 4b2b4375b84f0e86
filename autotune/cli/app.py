"""The commands and their options. Slow imports wait until a command needs them."""

import inspect
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options import ExportRequest, Json, Models, Priced, SessionArgument, Trained, grouped
from autotune.core import files
from autotune.core.errors import printable
from autotune.reports.model import SAMPLES
from autotune.sessions.requests import JudgeRequest, Probing, ResumeRequest, SearchRequest

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Finds the training settings that are fastest on this hardware at the same quality.",
)


@app.command()
@grouped
def init(
    training: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="the command line that starts your training")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="file to write")] = Path("space.yaml"),
    *,
    probed: Probing,
) -> int:
    """Write the search space of a training. Example: autotune init -o space.yaml -- python train.py"""
    from autotune.sessions import probing  # noqa: PLC0415 - `status` needs none of it

    return probing.write(training, probed, output)


@app.command()
@grouped
def check(
    training: Annotated[
        list[str],
        typer.Argument(metavar="SPACE | -- COMMAND...", help="a search space, or a command line that trains"),
    ],
    probed: Probing,
    data: Annotated[Path | None, typer.Option(help="data set, if the workload is r2gen")] = None,
    baseline: Annotated[Path | None, typer.Option(help="YAML file with the settings you run today")] = None,
    time: Annotated[str, typer.Option(help="how long it may take, such as 90s or 30m")] = "5m",
) -> int:
    """Try a search space, and say what a search would see. Example: autotune check space.yaml"""
    from autotune.sessions import probing  # noqa: PLC0415 - as above

    if probing.is_command(training):
        return probing.show(training, probed)
    from autotune.check import command  # noqa: PLC0415 - imports the trial engine

    return command.main(SearchRequest(space=training[0], data=data, baseline=baseline), time)


@app.command()
@grouped
def search(asked: SearchRequest) -> int:
    """Search for the fastest settings. Example: autotune search --time 1h -- python train.py --lr 3e-4"""
    from autotune.sessions import start  # noqa: PLC0415 - queries the machine, which `status` does not

    return start.search(asked)


@app.command()
@grouped
def judge(
    trainings: Annotated[
        list[str], typer.Argument(metavar="-- A --vs B", help="two command lines that train, or two scripts")
    ],
    asked: JudgeRequest,
) -> int:
    """Say if a change trains as well, but faster. Example: autotune judge -- python a.py --vs python b.py"""
    from autotune.sessions import judge as judging  # noqa: PLC0415 - `status` needs none of it

    return judging.judge(trainings, asked)


@app.command()
@grouped
def resume(asked: ResumeRequest) -> int:
    """Continue a search after a kill, a reboot or Ctrl-C. Example: autotune resume runs/iu --trials 20"""
    from autotune.sessions import start  # noqa: PLC0415 - as above

    return start.resume(asked)


@app.command()
@grouped
def compare(session: SessionArgument, models: Models) -> int:
    """Train and score a model per precision. Example: autotune compare runs/iu --precisions fp32,bf16"""
    from autotune.cli import compare as comparing  # noqa: PLC0415 - as above

    return comparing.compare(session, models)


@app.command()
@grouped
def train(
    target: Annotated[
        str,
        typer.Argument(
            help="a session (trains its winner), a search space (trains its baseline), or a config of r2gen"
        ),
    ],
    trained: Trained,
) -> int:
    """Train the winner to the end, and check it against its promise. Example: autotune train runs/iu"""
    from autotune.cli import train as training  # noqa: PLC0415 - as above

    return training.train(target, trained)


@app.command()
def predict(
    session: SessionArgument,
    memory: Annotated[
        str | None, typer.Option(help="sizes such as 8GiB,24GiB,80GiB; default: those of common GPUs")
    ] = None,
    as_json: Json = False,
) -> int:
    """Say what fits on another GPU. Example: autotune predict runs/iu --memory 8GiB,24GiB,80GiB"""
    from autotune.cli import predict as predicting  # noqa: PLC0415 - as above

    return predicting.predict(session, memory, as_json=as_json)


@app.command()
@grouped
def report(
    session: Annotated[Path, typer.Argument(help="directory of a session")],
    *,
    priced: Priced,
    form: Annotated[str, typer.Option("--format", help="html, json or md")] = "html",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="file to write, - for standard output; default: a file in the directory"
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=0, help="number of test studies to show, if models were compared")
    ] = SAMPLES,
) -> int:
    """Show a session in one file. Example: autotune report runs/iu --format md -o -"""
    from autotune.cli import report as reporting  # noqa: PLC0415 - as above

    return reporting.report(session, form, output, samples, reporting.prices(priced))


@app.command()
def recover(session: SessionArgument) -> int:
    """Rebuild a lost or damaged study from its trials' files. Example: autotune recover runs/iu"""
    from autotune.cli import recover as recovering  # noqa: PLC0415 - as above

    return recovering.recover(session)


@app.command()
def status(session: SessionArgument, as_json: Json = False) -> int:
    """Show what a session has found so far, running or not. Example: autotune status runs/iu"""
    from autotune.cli import status as showing  # noqa: PLC0415 - as above

    return showing.status(session, as_json=as_json)


@app.command()
@grouped
def export(session: SessionArgument, asked: ExportRequest) -> int:
    """Write the winner as the trainer's config. Example: autotune export runs/iu -o best.yaml"""
    from autotune.sessions import exporting  # noqa: PLC0415 - as above

    done = exporting.export(session, asked.output, asked.trial, asked.form, asked.patch)
    for line in done.notes:
        print(printable(line), file=sys.stderr)
    print(printable(f"{done.file}: {done.settings}"))
    if done.usage is not None:
        print(printable(done.usage))
    return 0


@app.command()
def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="file to write; default: print it")
    ] = None,
) -> int:
    """Write the JSON Schema of search spaces, for editors. Example: autotune schema -o schema.json"""
    from autotune.space import spaces  # noqa: PLC0415 - as above

    text = json.dumps(spaces.schema(), indent=2, ensure_ascii=False) + "\n"
    files.write(output, text) if output else files.write_to_stdout(text)
    return 0


@app.command()
def doctor() -> int:
    """Say what this machine can run, and what to do about the rest. Example: autotune doctor"""
    from rich.console import Console  # noqa: PLC0415 - as above

    from autotune.doctor.examine import examine, table  # noqa: PLC0415 - as above
    from autotune.system import scratch  # noqa: PLC0415 - as above

    scratch.end_orphans()
    Console().print(table(examine()))
    return 0


for command in app.registered_commands:  # in the list of commands the example is on the same line
    command.short_help = inspect.getdoc(command.callback)
    command.help = (command.short_help or "").replace(" Example: ", "\n\nExample: ")
