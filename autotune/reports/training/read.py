"""Reads the report of a training from its directory: running, stopped, or over. Writes nothing."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autotune.core import files
from autotune.core.errors import InputError
from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Status
from autotune.display.snapshot import ENDED, INTERRUPTED, RUNNING
from autotune.judging.accounts import promise
from autotune.reports.curves import CurvePoint, Happened
from autotune.reports.training import series
from autotune.reports.training.model import Promised, TrainingReport
from autotune.reports.training.series import Track, TrainingAttempt
from autotune.storage import lock
from autotune.storage.identity import read_verdict
from autotune.storage.records import lines_of, read_records
from autotune.storage.trial_dir import TrainingDir
from autotune.training import events, plan
from autotune.training.events import Kind
from autotune.training.plan import TrainingPlan
from autotune.trials.progress import Progress

_TURNS = {Kind.BEGUN, Kind.CONTINUED, Kind.RETRIED, Kind.HALVED, Kind.STOPPED, Kind.ENDED}
# Telemetry of other programs' use, see `Measurement.others`.
_MEANS = ("others_cpu_percent", "others_gpu_percent", "allowed_cpus", "gpu_throttled")


def read(root: Path, *, is_over: bool = False) -> TrainingReport:
    """Returns the report of the training in `root`; raises InputError if there is none.

    With `is_over`, a directory that is still locked counts as ended.
    """
    place = TrainingDir(root)
    known = plan.read(place)
    if known is None:
        raise InputError(f"{root}: is not the directory of a training: it has no {place.plan_file.name}")
    settings = {**known.settings, **known.changes}
    progress = Progress(known.metric, settings)
    track = Track(known.metric.name)
    for record in read_records(place):
        progress.count(record)
        track.count(record)
    attempts = track.timeline.attempts
    happened, seen = _events(place, attempts), series.telemetry_curves(_samples(place), attempts)
    is_running = not is_over and lock.is_held(place.root, place.lock_file)
    outcome, measured = _ended(place, progress.measurement(), happened)
    telemetry = _summary(seen, measured.telemetry)
    measured = replace(measured, device=measured.device or known.device, telemetry=telemetry)
    return TrainingReport(
        directory=str(root),
        state=RUNNING if is_running else ENDED if outcome else INTERRUPTED,
        workload=known.workload,
        device=known.device,
        begun=attempts[0].begun if attempts else None,
        metric=known.metric,
        planned=known.samples,
        outcome=outcome,
        promised=_promised(known, measured, outcome),
        measured=measured,
        seconds=track.timeline.seconds,
        attempts=len(attempts),
        repeated=track.repeated,
        work_bytes=files.room_bytes(place.work) or None,
        curves=track.curves(seen),
        growth=tuple(series.growth(seen, attempts)),
        events=happened,
        settings=settings,
        changes=known.changes,
    )


def _ended(
    place: TrainingDir, shown: Measurement, happened: Sequence[Happened]
) -> tuple[Outcome | None, Measurement]:
    """Returns the training's outcome, and its measurement with figures that only its last process knew.

    The verdict is an attempt's, which may be resumed. It is the training's if the attempt completed, or the
    last event says so; a kill may have prevented that event.
    """
    verdict = read_verdict(place)
    if verdict is None or verdict[1].samples != shown.samples:
        return None, shown
    turns = [event.kind for event in happened if event.kind in _TURNS]
    is_over = verdict[0].status is Status.COMPLETED or turns[-1:] == [Kind.ENDED]
    return verdict if is_over else (None, shown)


def _summary(seen: Mapping[str, Sequence[CurvePoint]], last: Mapping[str, float]) -> dict[str, float]:
    """Returns the `last` attempt's telemetry, with means over all attempts for other programs' use."""
    means = {name: statistics.fmean(point.value for point in seen[name]) for name in _MEANS if name in seen}
    return {**last, **means}


def _promised(known: TrainingPlan, measured: Measurement, outcome: Outcome | None) -> Promised | None:
    if known.promise is None:
        return None
    figures = promise.check(known.promise, measured, known.goal, known.metric.unit)
    answer = promise.overall(figures, outcome)
    return Promised(known.promise.session, known.promise.trial, answer, tuple(figures))


def _samples(place: TrainingDir) -> list[Mapping[str, object]]:
    return [line for line in lines_of(place.telemetry_file) if isinstance(line, dict)]


def _events(place: TrainingDir, attempts: list[TrainingAttempt]) -> tuple[Happened, ...]:
    return tuple(
        Happened(e.at, e.samples, series.seconds_at(e.at, attempts), e.kind, e.text)
        for e in events.read(place.events_file)
    )
