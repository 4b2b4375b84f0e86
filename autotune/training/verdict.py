"""Compares a training with what its session promised, from its directory. Writes nothing."""

from collections.abc import Iterator
from dataclasses import replace

from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome
from autotune.judging.accounts import promise
from autotune.judging.accounts.promise import PromiseAnswer
from autotune.storage.identity import read_verdict
from autotune.storage.records import read_records
from autotune.storage.trial_dir import TrainingDir
from autotune.training import events, messages, plan
from autotune.training.events import Kind
from autotune.training.plan import TrainingPlan
from autotune.trials.progress import Progress

_ANSWERS = {
    PromiseAnswer.HELD: "As promised",
    PromiseAnswer.BROKEN: "Not as promised",
    PromiseAnswer.UNDECIDED: "Not decided yet",
}


def lines(place: TrainingDir) -> Iterator[str]:
    """Yields the answer, a line for each promised figure, and possible reasons; none if nothing was promised.

    Raises InputError if the training's plan is unreadable.
    """
    planned = plan.read(place)
    if planned is None or (promised := planned.promise) is None:
        return
    outcome, measured = _measured(place, planned)
    checks = promise.check(promised, measured, planned.goal, planned.metric.unit)
    answer = _ANSWERS[promise.overall(checks, outcome)]
    yield f"{answer}, compared with trial {promised.trial} of session {promised.session}"
    yield from (f"- {check.what} {check.answer}: {check.text}" for check in checks)
    observed = [e.text for e in events.read(place.events_file) if e.kind in {Kind.DRIFT, Kind.LEAK}]
    yield from (f"- during the training: {text}" for text in [*messages.contention(measured), *observed])


def _measured(place: TrainingDir, planned: TrainingPlan) -> tuple[Outcome | None, Measurement]:
    """Returns the measurement from all records, and the outcome if the last process came to an end.

    Some figures, such as the memory limit, are known only to a process that has ended.
    """
    progress = Progress(planned.metric, {**planned.settings, **planned.changes})
    for record in read_records(place):
        progress.count(record)
    so_far, verdict = progress.measurement(), read_verdict(place)
    has_ended = verdict is not None and verdict[1].samples == so_far.samples
    outcome, measured = verdict if verdict and has_ended else (None, so_far)
    return outcome, replace(measured, device=measured.device or planned.device)
