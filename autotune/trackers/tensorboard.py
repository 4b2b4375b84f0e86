"""TensorBoard: one run for each trial, in event files below the session."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ray.tune.logger import LoggerCallback
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from autotune.core import secrecy
from autotune.core.errors import printable
from autotune.core.trial import Status
from autotune.space.space import Space
from autotune.trackers import charts
from autotune.trials import failures
from autotune.trials.reported import Report

logger = logging.getLogger(__name__)

_PREFIX = "events.out.tfevents."  # with the moment of its making: TensorBoard reads files in that order


class Board(LoggerCallback):
    """Logs every trial to `directory`, in a run that is called by its number.

    What cannot be written is left out: the search does not notice, and the log says so once. Of a disk that
    takes nothing more it says nothing: that stops the search, with a line of its own.
    """

    def __init__(self, directory: Path, space: Space) -> None:
        self._directory, self._knobs = directory, tuple(space.knobs)
        self._figures = ("perf/throughput", charts.score(space.objective.quality), "memory/peak_bytes")
        self._unit = space.unit
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
                run.log(Report.from_dict(result), self._unit)

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
                logger.warning("TensorBoard: %s; the search continues", printable(str(error)))
                self._complained = True


class _Run:
    """A trial's event file, a new one for every attempt. Its steps are samples, its clock is the trial's.

    RecordWriter is used by itself: EventFileWriter has a thread, which a full disk ends, and then whoever
    logs waits for ever. It is never flushed: what a kill can lose is the last 8 KiB.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        now_ns = time.time_ns()
        known_ns = [int(file.name.removeprefix(_PREFIX)) for file in directory.glob(f"{_PREFIX}*")]
        self._begun_s = min([now_ns, *known_ns]) / 1e9
        self._samples, self._seconds = 0, 0.0
        self._goes_on = bool(known_ns)
        self._name = directory.name
        self._writer = RecordWriter((directory / f"{_PREFIX}{now_ns}").open("wb"))
        self._write(file_version="brain.Event:2")

    def _write(self, **content: Any) -> None:
        event = Event(wall_time=self._begun_s + self._seconds, step=self._samples, **content)
        self._writer.write(event.SerializeToString())

    def describe(self, knobs: Mapping[str, Any], figures: Sequence[str]) -> None:
        """What the trial has in the table of hyperparameters; its figures are the last of their charts."""
        known = {name: value for name, value in secrecy.cleaned(knobs).items() if value is not None}
        experiment = api_pb2.Experiment(
            hparam_infos=[api_pb2.HParamInfo(name=name, type=_type(value)) for name, value in known.items()],
            metric_infos=[api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in figures],
        )
        self._write(summary=_hparams(metadata.EXPERIMENT_TAG, experiment=experiment))
        self._write(summary=hparams_pb(known, trial_id=self._name, start_time_secs=self._begun_s))

    def log(self, report: Report, unit: str) -> None:
        for row in charts.thinned(charts.rows(report, unit)):
            values = dict(row)
            samples = int(values.pop(unit, self._samples))
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
        end = plugin_data_pb2.SessionEndInfo(status=api_pb2.Status.Value(word))
        self._write(summary=_hparams(metadata.SESSION_END_INFO_TAG, session_end_info=end))

    def close(self) -> None:
        self._writer.close()


def _type(value: Any) -> Any:
    """The type of a hyperparameter as TensorBoard's table has it."""
    word = {bool: "DATA_TYPE_BOOL", str: "DATA_TYPE_STRING"}.get(type(value), "DATA_TYPE_FLOAT64")
    return api_pb2.DataType.Value(word)


def _hparams(tag: str, **content: Any) -> Summary:
    """What the table of hyperparameters finds under `tag`."""
    data = plugin_data_pb2.HParamsPluginData(**content)
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata.create_summary_metadata(data))])
