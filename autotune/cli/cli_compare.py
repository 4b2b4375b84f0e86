"""The command that compares precisions: compare."""

import math
import os
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autotune import workloads
from autotune.cli import gpus, prepare
from autotune.cli.gpus import Usable
from autotune.compare import compare as comparing
from autotune.compare import results
from autotune.compare.compare import Comparison, Contender, Terms
from autotune.compare.results import Model
from autotune.core.errors import InputError, printable
from autotune.core.settings import PRECISION, PRECISIONS
from autotune.core.shell import quoted
from autotune.core.trial import Status
from autotune.display import view
from autotune.judging import pilot, quality
from autotune.judging.history import History
from autotune.space.machine import Machine, why_not
from autotune.space.space import Space
from autotune.storage import provenance, study_file
from autotune.storage.store import Session
from autotune.system import devices
from autotune.system.telemetry import Hardware
from autotune.trials.setup import Training
from autotune.workloads import Workload

EXIT_MODEL_FAILED = 1
_SHOWN_SCORES = ("bleu_1", "bleu_4", "meteor", "rouge_l", "cider")


def compare(session: Path, precisions: str | None, samples_per_model: int | None) -> int:
    """Trains and scores a model per precision, and says what came of it; the exit code.

    It is 1 where a model could not be trained or scored.
    """
    opened = Session.open(session)
    opened.require_current(session)
    given = opened.space()
    workload = workloads.load(given.workload)
    with opened.lock():
        usable = gpus.usable(opened.options().gpus_per_trial)
        here = _use(usable)
        wanted, notes = _precisions(precisions, given, usable.machine)
        history = pilot.settled(History(study_file.trials(opened.study()), given))
        space, asked = history.space, comparing.contenders(history, wanted)
        terms, more = _terms(
            opened, given, workload, here, samples_per_model or space.budget.samples_per_trial
        )
        for note in [*usable.notes, *notes, *_equal(wanted, asked), *more]:
            _say(note)
        for contender in asked:
            workload.complete(space.settings(contender.config))
        training = Training(space, workload, here, opened.options())
        running = Comparison(opened, training, history.trials, terms=terms, say=_say)
        running.keep_only(comparing.contenders(history, PRECISIONS))
        failed = [contender.label for contender in asked if not running.run(contender)]
    Console().print(_table(results.models(opened.comparison_dir), space))
    print(printable(f"See what they wrote: python -m autotune report {quoted(session)}"))
    if failed:
        _say(f"{len(failed)} of {len(asked)} models failed: {', '.join(failed)}")
    return EXIT_MODEL_FAILED if failed else 0


def _terms(
    opened: Session, space: Space, workload: Workload, here: Hardware, samples: int
) -> tuple[Terms, list[str]]:
    """On what terms models are compared, and what the user should know of them."""
    notes = workload.check(space.for_workload(space.baseline))
    then, seed = opened.provenance(), opened.options().seed
    now = provenance.collect(opened.name, space, workload, here, seed)
    changed = provenance.changes(then, now, workload.places)
    if changed:
        notes.append(f"changed since the search: {'; '.join(changed)}; every model is trained again")
    terms = Terms(
        samples=samples,
        data=now["data"],
        may_take=not changed,
    )
    return terms, notes


def _equal(wanted: list[str], asked: list[Contender]) -> list[str]:
    """A line for each precision that is no model of its own."""
    labels = {contender.label for contender in asked}
    return [f"{PRECISION} {name}: is the baseline itself" for name in wanted if name not in labels]


def _use(usable: Usable) -> Hardware:
    """What a model may use: as many GPUs as a trial has. From here on they are all that this process sees."""
    devices.show(os.environ, usable.hardware.gpus[: math.ceil(usable.gpus_per_trial)])
    return usable.hardware


def _precisions(text: str | None, space: Space, here: Machine) -> tuple[list[str], list[str]]:
    """The precisions to compare, and a line for each that is left out because this machine cannot run it.

    Raises InputError where one does not exist, or where none of those that were named can run here.
    """
    if PRECISION not in space.baseline:
        raise InputError(f"compare: the workload {space.workload} has no setting called {PRECISION}")
    asked = list(PRECISIONS) if text is None else [name.strip() for name in text.split(",")]
    for name in asked:
        prepare.one_of("--precisions", name, tuple(PRECISIONS))
    lacking = {name: why for name in asked if (why := why_not(PRECISION, name, here, space.known))}
    if lacking.keys() == set(asked):
        raise InputError(f"--precisions: {'; '.join(f'{name} {why}' for name, why in lacking.items())}")
    notes = [f"{PRECISION} {name}: left out, {why}" for name, why in lacking.items()]
    return [name for name in dict.fromkeys(asked) if name not in lacking], notes


def _say(line: str) -> None:
    print(printable(line), flush=True)


def _table(models: Mapping[str, Model], space: Space) -> Table:
    """One row a model: its training, and its scores over the test split; the training's where it has none."""
    known = {name for model in models.values() for name in model.scores}
    scores = [name for name in _SHOWN_SCORES if name in known] or sorted(known)
    headings = ("model", f"{space.unit}/s", "memory", *(scores or [space.objective.quality]), "reports/s")
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        grid.add_column(Text(printable(heading)), justify="left" if heading == "model" else "right")
    for model in models.values():
        grid.add_row(*(Text(printable(cell)) for cell in _row(model, scores, space)))
    return grid


def _row(model: Model, scores: list[str], space: Space) -> tuple[str, ...]:
    trained = model.training.throughput
    is_trained = model.outcome.status is Status.COMPLETED
    own = quality.shown(model.training.quality, space.objective)
    qualities = [model.scores.get(name) for name in scores] or [own]
    return (
        model.label if is_trained else f"{model.label} {model.outcome}",
        "-" if trained is None else f"{trained.samples_per_s:.1f}",
        view.peak(model.training),
        *map(view.quality, qualities),
        "-" if model.reports_per_s is None else f"{model.reports_per_s:.1f}",
    )
