"""Reads the report of a training from its directory: running, stopped, or over. Writes nothing."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autotune.core import files
from autotune.core.errors import InputError
from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Status
from autotune.display.snapshot import ENDED, INTERRUPTED, RUNNING
from autotune.judging.accounts import promise
from autotune.reports.curves import CurveEvent
from autotune.reports.training import series
from autotune.reports.training.model import Promised, TrainingReport
from autotune.reports.training.series import Track
from autotune.storage import lock
from autotune.storage.identity import read_verdict
from autotune.storage.records import lines_of, read_records
from autotune.storage.trial_dir import TrainingDir
from autotune.training import events, plan
from autotune.training.events import Kind
from autotune.training.plan import TrainingPlan
from autotune.trials.progress import Progress

_TURNS = {Kind.BEGUN, Kind.CONTINUED, Kind.RETRIED, Kind.HALVED, Kind.STOPPED, Kind.ENDED}
# Telemetry of other programs' use, see `Measurement.others`: means over all attempts.
_MEANS = ("others_cpu_percent", "others_gpu_percent", "allowed_cpus", "gpu_throttled")


def read(root: Path, *, is_over: bool = False) -> TrainingReport:
    """Returns the report of the training in `root`; raises InputError if there is none.

    With `is_over`, a directory that is still locked counts as ended.
    """
    place = TrainingDir(root)
    planned = plan.read(place)
    if planned is None:
        raise InputError(f"{root}: is not the directory of a training: it has no {place.plan_file.name}")
    settings = {**planned.settings, **planned.changes}
    progress, track = Progress(planned.metric, settings), Track(planned.metric.name)
    for record in read_records(place):
        progress.count(record)
        track.count(record)
    attempts = track.attempts
    happened = tuple(
        CurveEvent(e.at, e.samples, series.seconds_at(e.at, attempts), e.kind, e.text)
        for e in events.read(place.events_file)
    )
    lines = (line for line in lines_of(place.telemetry_file) if isinstance(line, dict))
    telemetry = series.telemetry_curves(lines, attempts)
    is_running = not is_over and lock.is_held(place.root, place.lock_file)
    outcome, measured = _ended(place, progress.measurement(), happened)
    means = {n: statistics.fmean(point.value for point in telemetry[n]) for n in _MEANS if n in telemetry}
    device = measured.device or planned.device
    measured = replace(measured, device=device, telemetry={**measured.telemetry, **means})
    return TrainingReport(
        directory=str(root),
        state=RUNNING if is_running else ENDED if outcome else INTERRUPTED,
        workload=planned.workload,
        device=planned.device,
        begun=attempts[0].begun if attempts else None,
        metric=planned.metric,
        planned=planned.samples,
        outcome=outcome,
        promised=_promised(planned, measured, outcome),
        measured=measured,
        seconds=track.seconds,
        attempts=len(attempts),
        repeated=track.repeated,
        work_bytes=files.disk_usage_bytes(place.work) or None,
        curves=track.curves(telemetry),
        growth=tuple(series.growth(telemetry, attempts)),
        events=happened,
        settings=settings,
        changes=planned.changes,
    )


def _ended(
    place: TrainingDir, so_far: Measurement, happened: Sequence[CurveEvent]
) -> tuple[Outcome | None, Measurement]:
    """Returns the training's outcome, and its measurement with figures that only its last process knew.

    A verdict is about one attempt, after which the training may be resumed. It is the training's outcome if
    the attempt completed, or if the last event says so; a kill may have prevented that event.
    """
    verdict = read_verdict(place)
    if verdict is None or verdict[1].samples != so_far.samples:
        return None, so_far
    turns = [event.kind for event in happened if event.kind in _TURNS]
    is_over = verdict[0].status is Status.COMPLETED or turns[-1:] == [Kind.ENDED]
    return verdict if is_over else (None, so_far)


def _promised(planned: TrainingPlan, measured: Measurement, outcome: Outcome | None) -> Promised | None:
    if planned.promise is None:
        return None
    checks = promise.check(planned.promise, measured, planned.goal, planned.metric.unit)
    answer = promise.overall(checks, outcome)
    return Promised(planned.promise.session, planned.promise.trial, answer, tuple(checks))
