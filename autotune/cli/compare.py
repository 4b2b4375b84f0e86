"""The command `compare`, which compares precisions."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autotune.cli.options import Models
from autotune.compare import compare as comparing
from autotune.compare import results
from autotune.compare.compare import Comparison, ModelLength
from autotune.core.errors import InputError, printable
from autotune.core.settings import PRECISION, PRECISIONS
from autotune.core.shell import quoted
from autotune.core.trial import Status
from autotune.display import words
from autotune.reports import read, tables
from autotune.reports.model import SessionReport
from autotune.sessions import gpus, option_values
from autotune.space import configurations
from autotune.space.machine import Machine, explain_unsupported
from autotune.space.space import Space
from autotune.storage import provenance
from autotune.storage.store import StoredSession
from autotune.system import telemetry
from autotune.system.telemetry import Hardware
from autotune.trials.setup import TrainingSetup
from autotune.workloads import registry
from autotune.workloads.base import Workload

EXIT_MODEL_FAILED = 1


def compare(session: Path, asked: Models) -> int:
    """Trains, scores and compares models of each precision; returns 1 if one was not trained or scored."""
    opened = StoredSession.open(session)
    given = opened.space()
    workload = registry.load(given.workload)
    with opened.lock():
        usable = gpus.usable(opened.options().gpus_per_trial)
        gpus.show_one_trial(usable)
        here = usable.hardware
        wanted, notes = _precisions(asked.precisions, given, usable.machine)
        history = opened.history()
        space, models = history.space, comparing.contenders(history, wanted, asked.seeds)
        facts, more = _facts(opened, given, workload, here)
        length = _length(asked, space, workload, comparing.known_length(opened, facts))
        labels = {contender.label for contender in models}
        equal = [f"{PRECISION} {name}: the baseline has it already" for name in wanted if name not in labels]
        for note in [*usable.notes, *notes, *equal, *more]:
            _say(note)
        for contender in models:
            workload.complete(space.settings(contender.config))
        training = TrainingSetup(space, workload, here, opened.options())
        running = Comparison(opened, training, length, facts, _say)
        known = results.runs(opened.comparison.root)
        running.keep_only(comparing.contenders(history, PRECISIONS, max(asked.seeds, results.seeds(known))))
        results.write_keep(opened.comparison.goal_file, asked.keep)
        failed = [contender.name for contender in models if not running.run(contender)]
    report = read.read(session, 0)
    _print_figures(report)
    if report.which_precision:
        _say(report.which_precision.sentence)
    print(printable(f"Compare the models in the report: python -m autotune report {quoted(session)}"))
    if failed:
        _say(f"{len(failed)} of {len(models)} models failed: {', '.join(failed)}")
    return EXIT_MODEL_FAILED if failed else 0


def _length(asked: Models, space: Space, workload: Workload, known: ModelLength | None) -> ModelLength:
    """Returns how long each model is trained: as asked, else as long as the `known` models, or as a trial."""
    if asked.epochs_per_model is None:
        if asked.samples_per_model is not None:
            return ModelLength(asked.samples_per_model)
        return known or ModelLength(space.budget.samples_per_trial)
    if asked.samples_per_model is not None:
        raise InputError(
            "--samples-per-model, --epochs-per-model: give only one of them, "
            f"got {asked.samples_per_model} and {asked.epochs_per_model}"
        )
    epoch = space.training.samples_per_epoch or workload.samples_per_epoch(space.baseline)
    if epoch is None:
        raise InputError(
            f"--epochs-per-model: how many {space.unit} an epoch has is not known: "
            "give training.samples_per_epoch in the session's space.yaml, or --samples-per-model"
        )
    return ModelLength(asked.epochs_per_model * epoch, asked.epochs_per_model)


def _facts(
    opened: StoredSession, space: Space, workload: Workload, here: Hardware
) -> tuple[dict[str, Any], list[str]]:
    """Returns the facts that results depend on, and notes for the user."""
    notes = workload.check(configurations.for_workload(space, space.baseline))
    then, seed = opened.provenance(), opened.options().seed
    now = provenance.collect(opened.name, space, workload, here, seed)
    if changed := provenance.changes(then, now, workload.places):
        notes.append(f"changed since the search: {'; '.join(changed)}")
    return {**provenance.decisive_facts(now), "device": telemetry.device()}, notes


def _precisions(text: str | None, space: Space, here: Machine) -> tuple[list[str], list[str]]:
    """Returns the precisions to compare, and a line for each that this machine cannot run."""
    if PRECISION not in space.baseline:
        raise InputError(f"compare: the workload {space.workload} has no setting called {PRECISION}")
    asked = list(PRECISIONS) if text is None else [name.strip() for name in text.split(",")]
    for name in asked:
        option_values.one_of("--precisions", name, tuple(PRECISIONS))
    lacking = {
        name: why for name in asked if (why := explain_unsupported(PRECISION, name, here, space.known))
    }
    if lacking.keys() == set(asked):
        raise InputError(f"--precisions: {'; '.join(f'{name} {why}' for name, why in lacking.items())}")
    notes = [f"{PRECISION} {name}: left out, {why}" for name, why in lacking.items()]
    return [name for name in dict.fromkeys(asked) if name not in lacking], notes


def _say(line: str) -> None:
    print(printable(line), flush=True)


def _print_figures(report: SessionReport) -> None:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    grid.add_column("")
    for model in report.compared:
        status = "" if model.status == Status.COMPLETED else f" {model.status}"
        grid.add_column(Text(printable(model.label + status)), justify="right")
    for table in filter(None, (tables.scores(report), tables.trainings(report.compared))):
        cells = {row[0]: row for row in table.rows}
        for n, name in enumerate(table.head[1:], start=1):
            each = (cells[m.label][n] if m.label in cells else words.NOTHING for m in report.compared)
            grid.add_row(Text(printable(name)), *map(printable, each))
    Console().print(grid)
