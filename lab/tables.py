"""The commands over tables of recorded runs: record, replay."""

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.core.errors import InputError, printable
from autotune.core.shell import quoted
from autotune.space import builtin
from autotune.storage.lock import hold_file
from autotune.storage.store import Options
from autotune.workloads import registry

if TYPE_CHECKING:
    from autotune.trials.setup import TrainingSetup
    from lab.replay.table import Table


def record(  # noqa: PLR0917 - typer makes an option of every argument
    file: Annotated[Path, typer.Argument(metavar="TABLE", help="file to write; continues an existing one")],
    space: Annotated[
        str,
        typer.Option(help="search space: a YAML file whose knobs are all choices"),
    ],
    data: Annotated[
        Path | None, typer.Option(help="data set in R2Gen's layout; default: drawn X-rays")
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="YAML file with the settings you run today")] = None,
    model: Annotated[str | None, typer.Option(help="size of the R2Gen model: full or small")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="seeds per configuration that may differ in quality")] = 3,
    timings: Annotated[
        int, typer.Option(min=1, help="timed runs per configuration that may differ in speed")
    ] = 2,
    memory_limit: Annotated[str | None, typer.Option(help="host memory limit per run, such as 3GiB")] = None,
    only: Annotated[
        str, typer.Option(help="runs to record: all, timed (needs an otherwise idle machine) or untimed")
    ] = "all",
    drift: Annotated[
        str | None,
        typer.Option(
            help="instead, train the baseline for this long, to record how the speed varies, such as 10m"
        ),
    ] = None,
) -> int:
    """Record a grid of runs, to replay searches over. Example: lab record t.jsonl --space grid.yaml"""
    # Late imports: the modules that run trials take a while to load, and `status` does not need them.
    from autotune.sessions import option_values  # noqa: PLC0415
    from lab.replay import recording  # noqa: PLC0415

    option_values.one_of("--only", only, recording.PARTS)
    drift_s = option_values.duration_s("--drift", drift)
    limits = Options(memory_limit_bytes=option_values.size_bytes("--memory-limit", memory_limit))
    training, notes = _training(space, model, baseline, data, limits)
    recording.grid(training.space)  # raises before anything is written if the grid is invalid
    _require_file(file)
    with hold_file(file.with_name(file.name + ".lock"), f"table {file}"):
        known = _table(file, training, memory_limit)
        for line in notes:
            print(printable(line))
        if drift_s is None:
            lacking = recording.missing(known, seeds=seeds, timings=timings, part=only)
            recording.record(file, known, training, lacking, say=_say)
        else:
            moved = recording.record_drift(file, training, drift_s)
            print(f"recorded {len(moved.speeds)} seconds: the speed has a deviation of {moved.deviation:.0%}")
    return 0


def _say(line: str) -> None:
    print(printable(line), flush=True)


def _training(
    space: str, model: str | None, baseline: Path | None, data: Path | None, limits: Options
) -> tuple["TrainingSetup", list[str]]:
    """Returns the training that a table's runs belong to, and notes for the user."""
    from autotune.sessions import gpus, prepare  # noqa: PLC0415 - as above
    from autotune.trials.setup import TrainingSetup  # noqa: PLC0415

    here, source = gpus.usable(None), builtin.space_file(space)
    asked = prepare.read_space(source, {})
    workload = registry.load(asked.workload)
    given = prepare.settings(workload, asked, model, baseline, data)
    chosen, notes = prepare.complete(asked, given, workload, here.machine, str(source))
    return TrainingSetup(chosen, workload, here.hardware, limits), [*here.notes, *notes]


def _table(file: Path, training: "TrainingSetup", memory_limit: str | None) -> "Table":
    """Opens the table in `file`, or creates it; raises InputError if it belongs to another grid."""
    from autotune.sessions import prepare  # noqa: PLC0415 - as above
    from lab.replay import table  # noqa: PLC0415

    if not file.exists():
        facts = _facts(training) | {"memory_limit": memory_limit or "none"}
        table.create(file, table.Header(prepare.without(training.space, training.workload.places), facts))
    known = table.Table.read(file)
    if known.header.space.knobs != training.space.knobs:
        raise InputError(f"table {file}: holds another grid; name a new file")
    return known


def _require_file(file: Path) -> None:
    """Creates the parent directory of a table; raises InputError if no file can be created there."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        is_directory = file.is_dir()
    except OSError as error:
        raise InputError(f"table {file}: cannot be written: {error.strerror}") from None
    if is_directory:
        raise InputError(f"table {file}: must be a file, and is a directory")


def _facts(training: "TrainingSetup") -> dict[str, str | int]:
    """Returns the provenance of a table's figures."""
    hardware, workload = training.hardware, training.workload
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware.description,
        "revision": workload.revision(),
        "versions": ", ".join(f"{name} {version(name)}" for name in ("autotune-r2gen", "torch")),
        "samples_per_run": training.space.budget.samples_per_trial,
        "host_memory_bytes": hardware.host_memory_bytes,
    }


def replay(
    file: Annotated[Path, typer.Argument(metavar="TABLE", help="a table of recorded runs")],
    strategy: Annotated[str, typer.Option(help="ours, warm, optuna, random or asha")] = "ours",
    seeds: Annotated[int, typer.Option(min=1, help="number of searches to replay")] = 50,
    trials: Annotated[int, typer.Option(min=1, help="configurations per search")] = 40,
) -> int:
    """Replay searches over recorded runs, in simulated time. Example: lab replay t.jsonl --seeds 20"""
    from autotune.sessions import option_values  # noqa: PLC0415 - as above
    from lab.replay import scoring  # noqa: PLC0415 - importing the sampler takes a second
    from lab.replay.table import Table  # noqa: PLC0415

    option_values.one_of("--strategy", strategy, (*scoring.STRATEGIES, *scoring.VARIANTS))
    known = Table.read(file)
    require_whole(known, file)
    print(f"Simulated device time, medians of {seeds}:")
    print(scoring.HEADING)
    print(scoring.line(strategy, scoring.scores(file, [strategy], seeds, trials)[strategy]))
    return 0


def require_whole(known: "Table", file: Path) -> None:
    """Raises InputError if `known` lacks a run that a search may ask for."""
    from lab.replay import recording  # noqa: PLC0415 - as above

    lacking = sum(not known.covers(config) for config in recording.grid(known.space))
    if lacking:
        raise InputError(
            f"table {file}: runs of {lacking} configurations of its grid are missing; finish it with: "
            f"python -m lab record {quoted(file)} --space GRID"
        )
