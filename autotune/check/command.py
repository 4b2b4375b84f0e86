"""`check`: prepares a space as a search does, runs its baseline a few times, and prints findings."""

import multiprocessing.util
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from autotune.check.findings import FEWEST_EVALUATIONS, Checked, Run, findings, largest_difference, resumed
from autotune.core import secrecy
from autotune.core.errors import printable
from autotune.doctor.examine import table
from autotune.sessions import option_values, prepare, start
from autotune.sessions.requests import SearchRequest
from autotune.storage.layout import TrialDir
from autotune.storage.records import read_records
from autotune.storage.store import Options
from autotune.system import scratch, signals
from autotune.trials.attempt import Attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import NEVER, Ends, Order
from autotune.trials.report import TrialReport
from autotune.trials.setup import TrainingSetup

EXIT_FAILED = 1
_POLL_S = 0.2
_LINES = 20
_FIRST_SHARE, _SECOND_SHARE = 0.5, 0.9  # of the time: deadlines of the first and second run
_PATIENT_SHARE = 0.25  # of the time: limit for the first run to reach a second evaluation
_KNOWN_SHARE = 0.1  # of a throughput: half-width of an interval that suffices to predict a search's duration


def main(request: SearchRequest, most: str) -> int:
    """Checks a search space within the time `most`; returns the exit code, 1 if a search could not start.

    Raises InputError for anything that a search would refuse.
    """
    most_s = option_values.duration_s("--time", most) or 0.0
    here = start.hardware(None, None)
    given = start.given_space(request, here.hardware)
    space, workload, notes = start.prepared(request, prepare.read_space(given, {}), given, here)
    console = Console(soft_wrap=True)
    for note in [*here.notes, *notes]:
        console.print(note, markup=False, highlight=False)
    options = Options(gpus_per_trial=here.gpus_per_trial)
    multiprocessing.util.get_temp_dir()  # created now, outside the scratch directory: it is removed at exit
    with scratch.private(), signals.ended_by_sigterm(), scratch.directory(".check-", Path.cwd()) as root:
        training = TrainingSetup(space, workload, here.hardware, options)
        checked = _check(_Baseline(training, root, ForkServer(workload.preload)), console, most_s)
    console.print(table(findings(checked)))
    for line in checked.run.log if checked.run.has_failed else ():
        console.print(f"  {secrecy.without_secrets(printable(line))}", markup=False, highlight=False)
    return 0 if checked.is_ready else EXIT_FAILED


@dataclass(frozen=True)
class _Baseline:
    """Runs the baseline of a `training` briefly, without Ray, in directories below `root`."""

    training: TrainingSetup
    root: Path
    server: ForkServer

    def order(self, name: str, seed: int) -> Order:
        """Returns the order of a search's first trial, with its checkpoint kept for resuming."""
        place = TrialDir(self.root / name)
        order = self.training.order(self.training.space.baseline_config, place, seed=seed)
        return replace(order, keep_work=True)

    def run(self, order: Order, is_enough: Callable[[TrialReport], bool], until_s: float) -> Run:
        """Runs an order until `is_enough` is True for a report, or until `until_s` on the monotonic clock."""
        attempt, outcome = Attempt(order, self.server), None
        try:
            while outcome is None and time.monotonic() < until_s:
                report = attempt.step(_POLL_S)
                outcome = report.outcome
                if is_enough(report):
                    break
        finally:
            attempt.stop()
        log = order.place.log
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
        tail = [line for line in lines if line.strip()][-_LINES:]
        return Run(tuple(read_records(order.place)), outcome, attempt.measurement(), tail)


def _check(baseline: _Baseline, console: Console, most_s: float) -> Checked:
    """Runs the baseline three times: as it is, stopped and resumed, and with another seed."""
    space, begun_s = baseline.training.space, time.monotonic()
    quality = space.objective.quality
    first_s, second_s, end_s = (begun_s + share * most_s for share in (_FIRST_SHARE, _SECOND_SHARE, 1.0))
    with console.status("running the baseline"):
        patient = _Enough(quality, begun_s + _PATIENT_SHARE * most_s)
        run = baseline.run(baseline.order("first", 0), patient, first_s)
    checked = Checked(space, run, slots=max(1, len(baseline.training.hardware.gpus)))
    if not checked.is_ready:
        return checked
    once = partial(_Enough, quality, begun_s)
    with console.status("running it again with the same seed, stopped and resumed"):
        order = replace(baseline.order("again", 0), ends=Ends(NEVER))
        baseline.run(order, once(), second_s)
        again = baseline.run(order, lambda report: bool(report.records), second_s)
    with console.status("running it with another seed"):
        order = replace(baseline.order("other", 1), ends=Ends(NEVER))
        other = baseline.run(order, once(), end_s)
    return replace(
        checked,
        again=largest_difference(run.records, again.records, quality),
        other=largest_difference(run.records, other.records, quality),
        resumed=resumed(again.records),
    )


class _Enough:
    """Ends a run after an evaluation and one more step: by then, a checkpoint is written.

    Before `patient_s` on the monotonic clock, it waits for two evaluations and a precise speed. Evaluations
    before the first step do not count.
    """

    def __init__(self, quality: str, patient_s: float) -> None:
        self._quality, self._patient_s = quality, patient_s
        self._seen = 0
        self._has_gone_on = False

    def __call__(self, report: TrialReport) -> bool:
        for record in report.records:
            self._seen += self._quality in record and record["samples"] > 0
            self._has_gone_on = self._quality not in record
        speed = report.measurement.throughput
        half = speed.half_width_per_s if speed else None
        is_known = speed is not None and half is not None and half <= _KNOWN_SHARE * speed.samples_per_s
        is_whole = self._seen >= FEWEST_EVALUATIONS and is_known
        is_late = self._seen > 0 and time.monotonic() >= self._patient_s
        return self._has_gone_on and (is_whole or is_late)
