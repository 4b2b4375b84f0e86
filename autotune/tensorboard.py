"""TensorBoard: one run for each trial, in event files below the session."""

import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ray.tune.logger import LoggerCallback

from autotune import charts, failures
from autotune.errors import printable
from autotune.reported import Report
from autotune.space import Space
from autotune.trial import Status


@contextmanager
def _unfound(module: str) -> Iterator[None]:
    """Lets imports take `module` for one that is not installed, unless it is imported already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]


with _unfound("torch"):  # of no use here, and 2 s and 120 MiB of the driver's
    from tensorboardX.proto.api_pb2 import Status as HparamsStatus
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionEndInfo
    from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboardX.record_writer import RecordWriter
    from tensorboardX.summary import hparams

logger = logging.getLogger(__name__)

_PREFIX = "events.out.tfevents."  # with the moment of its making: TensorBoard reads files in that order


class Board(LoggerCallback):
    """Logs every trial to `directory`, in a run that is called by its number.

    What cannot be written is left out: the search does not notice, and the log says so once. Of a disk that
    takes nothing more it says nothing: that stops the search, with a line of its own.
    """

    def __init__(self, directory: Path, space: Space) -> None:
        self._directory, self._knobs = directory, tuple(space.knobs)
        self._figures = ("perf/throughput", f"val/{space.objective.quality}", "memory/peak_bytes")
        self._runs: dict[int, _Run] = {}
        self._complained = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runs": {}}

    def log_trial_start(self, trial: Any) -> None:
        number, settings = trial.config["number"], trial.config["config"]
        if number in self._runs:
            return
        with self._excused(number):
            self._runs[number] = run = _Run(self._directory / f"{number:04d}")
            run.describe({name: settings[name] for name in self._knobs}, self._figures)

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:  # noqa: ARG002
        number = trial.config["number"]
        with self._excused(number):
            if run := self._runs.get(number):
                run.log(Report.from_dict(result))

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:  # noqa: ARG002
        self._close(trial.config["number"])

    def on_experiment_end(self, trials: Sequence[Any], **info: Any) -> None:  # noqa: ARG002
        for number in list(self._runs):  # of trials that have not ended
            self._close(number)

    def _close(self, number: int) -> None:
        with self._excused(number):
            if run := self._runs.pop(number, None):
                run.close()

    @contextmanager
    def _excused(self, number: int) -> Iterator[None]:
        """A run that cannot be written is closed and no longer written."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the search goes on
            if run := self._runs.pop(number, None):
                with suppress(OSError):
                    run.close()
            if not self._complained and not failures.disk_fault(error, failures.OUR_DISK_ERRNOS):
                logger.warning("TensorBoard: %s; the search goes on", printable(str(error)))
                self._complained = True


class _Run:
    """A trial's event file, a new one for every attempt. Its steps are samples, its clock is the trial's.

    RecordWriter is used by itself: SummaryWriter has a thread, which a full disk ends, and then whoever logs
    waits for ever. It is never flushed, which syncs: what a kill can lose is the last 8 KiB.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        now_ns = time.time_ns()
        known_ns = [int(file.name.removeprefix(_PREFIX)) for file in directory.glob(f"{_PREFIX}*")]
        self._begun_s = min([now_ns, *known_ns]) / 1e9
        self._samples, self._seconds = 0, 0.0
        self._goes_on = bool(known_ns)
        self._writer = RecordWriter(str(directory / f"{_PREFIX}{now_ns}"))
        self._write(file_version="brain.Event:2")

    def _write(self, **content: Any) -> None:
        event = Event(wall_time=self._begun_s + self._seconds, step=self._samples, **content)
        self._writer.write(event.SerializeToString())

    def describe(self, knobs: Mapping[str, Any], figures: Sequence[str]) -> None:
        """What the trial has in the table of hyperparameters; its figures are the last of their charts."""
        experiment, start, _ = hparams(charts.cleaned(knobs), dict.fromkeys(figures))
        self._write(summary=experiment)
        self._write(summary=start)

    def log(self, report: Report) -> None:
        for row in charts.thinned(charts.rows(report)):
            values = dict(row)
            samples = int(values.pop("samples", self._samples))
            self._seconds = values.pop("seconds", self._seconds)
            is_behind, self._samples = samples < self._samples, samples
            if is_behind or self._goes_on:  # from its checkpoint: what was beyond is done again
                self._goes_on = False
                self._write(session_log=SessionLog(status=SessionLog.START))
            charted = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            self._write(summary=Summary(value=charted))
        if report.outcome is not None:
            self._end(report.outcome.status)

    def _end(self, status: Status) -> None:
        """Says in the table of hyperparameters how the trial ended; one that may go on has not."""
        if status is Status.INTERRUPTED:
            return
        word = "STATUS_FAILURE" if status is Status.FAILED else "STATUS_SUCCESS"
        info = HParamsPluginData(session_end_info=SessionEndInfo(status=HparamsStatus.Value(word)))
        plugin = SummaryMetadata.PluginData(plugin_name="hparams", content=info.SerializeToString())
        end = Summary.Value(tag="_hparams_/session_end_info", metadata=SummaryMetadata(plugin_data=plugin))
        self._write(summary=Summary(value=[end]))

    def close(self) -> None:
        self._writer.close()
