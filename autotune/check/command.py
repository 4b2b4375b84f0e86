"""`check`: prepares a space as a search does, runs its baseline a few times, and prints findings."""

import multiprocessing.util
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from autotune.check import runs, seen
from autotune.check.findings import Checked, findings, is_ready
from autotune.check.runs import Runs
from autotune.core import secrecy
from autotune.core.errors import printable
from autotune.core.measurement import Throughput
from autotune.doctor.examine import table
from autotune.sessions import option_values, prepare, probing, start
from autotune.sessions.requests import SearchRequest
from autotune.storage.store import Options
from autotune.system import scratch, signals
from autotune.system.telemetry import Hardware
from autotune.trials.fork_server import ForkServer
from autotune.trials.report import TrialReport
from autotune.trials.setup import TrainingSetup

EXIT_FAILED = 1
_FIRST_SHARE, _SECOND_SHARE = 0.5, 0.9  # of the time: deadlines of the first and second run
_PATIENT_SHARE = 0.25  # of the time: limit for the first run to reach a second evaluation
_FEWEST_EVALUATIONS = 2
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
    with scratch.private(), probing.ended_by_sigterm(), temp_dirs.directory(".check-", Path.cwd()) as root:
        training = TrainingSetup(space, workload, here.hardware, options)
        baseline = Runs(training, root, ForkServer(workload.preload))
        checked = _check(baseline, console, most_s, slots(here.hardware, options))
    console.print(table(findings(checked)))
    for line in checked.run.log if checked.run.has_failed else ():
        console.print(f"  {secrecy.without_secrets(printable(line))}", markup=False, highlight=False)
    return 0 if is_ready(checked) else EXIT_FAILED


def _check(baseline: Runs, console: Console, most_s: float, slots: int) -> Checked:
    """Runs the baseline three times: first, then stopped and resumed, and then with another seed."""
    space, begun_s = baseline.training.space, time.monotonic()
    quality = space.objective.quality
    first_s, second_s, end_s = (begun_s + share * most_s for share in (_FIRST_SHARE, _SECOND_SHARE, 1.0))
    with console.status("running the baseline"):
        patient = _Enough(quality, begun_s + _PATIENT_SHARE * most_s)
        run = baseline.run(baseline.order("first", 0), patient, first_s)
    checked = Checked(space, run, seen.seen(run.records, quality), slots)
    if not is_ready(checked):
        return checked
    once = partial(_Enough, quality, begun_s)
    with console.status("running it again with the same seed, stopped and resumed"):
        order = runs.endless(baseline.order("again", 0))
        baseline.run(order, once(), second_s)
        again = baseline.run(order, lambda report: bool(report.records), second_s)
    with console.status("running it with another seed"):
        other = baseline.run(runs.endless(baseline.order("other", 1)), once(), end_s)
    return replace(
        checked,
        again=seen.likeness(run.records, again.records, quality),
        other=seen.likeness(run.records, other.records, quality),
        resumed=seen.resumed(again.records),
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
        is_whole = self._seen >= _FEWEST_EVALUATIONS and _is_known(report.measurement.throughput)
        is_late = self._seen > 0 and time.monotonic() >= self._patient_s
        return self._has_gone_on and (is_whole or is_late)


def _is_known(throughput: Throughput | None) -> bool:
    half = throughput.half_width_per_s if throughput else None
    return throughput is not None and half is not None and half <= _KNOWN_SHARE * throughput.samples_per_s


def slots(hardware: Hardware, options: Options) -> int:
    """Returns the number of concurrent trials of a search."""
    if options.gpus_per_trial:
        per_device = 1 / options.gpus_per_trial
        return max(1, int(len(hardware.gpus) * per_device))
    return max(1, hardware.cpus // (options.cpus_per_trial or hardware.cpus))
