"""TensorBoard event files for a search's trials or for a training; writing never blocks or fails them."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from autotune.core import secrecy
from autotune.core.errors import printable
from autotune.core.metric import Metric
from autotune.core.trial import Status
from autotune.trackers import charts
from autotune.trials import failures
from autotune.trials.reported import Report

logger = logging.getLogger(__name__)

_PREFIX = "events.out.tfevents."  # followed by the creation time in ns: TensorBoard reads files in that order


class EventFiles:
    """Event files of runs below `directory`, one folder per run; steps are samples.

    A run that cannot be written is dropped, with one warning; `whose` runs they are goes on. A full disk is
    not reported here: it stops the search or training with a message of its own.
    """

    def __init__(self, directory: Path, metric: Metric, whose: str = "search") -> None:
        self._directory, self._whose = directory, whose
        self._metric = metric
        self._figures = ("perf/throughput", charts.score(metric.name), "memory/peak_bytes")
        self._open: dict[str, _File] = {}
        self._complained = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    def begin(self, name: str, knobs: Mapping[str, Any]) -> None:
        """Starts a run, or an attempt that resumes it."""
        if name in self._open:
            return
        with self._excused(name):
            self._open[name] = file = _File(self._directory / name)
            file.describe(knobs, self._figures)

    def log(self, name: str, report: Report) -> None:
        with self._excused(name):
            if file := self._open.get(name):
                file.log(report, self._metric)

    def close(self, name: str) -> None:
        with self._excused(name):
            if file := self._open.pop(name, None):
                file.close()

    def close_all(self) -> None:
        for name in list(self._open):
            self.close(name)

    @contextmanager
    def _excused(self, name: str) -> Iterator[None]:
        """Closes and drops a run that cannot be written."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - no failure to log may end a search
            if file := self._open.pop(name, None):
                with suppress(OSError):
                    file.close()
            if not self._complained and not failures.disk_fault(error, failures.OUR_DISK_ERRNOS):
                logger.warning("TensorBoard: %s; the %s continues", printable(str(error)), self._whose)
                self._complained = True


class _File:
    """Event file of one attempt at a trial; steps are samples, the clock is the trial's.

    Uses RecordWriter alone: a full disk ends EventFileWriter's thread, and every caller then blocks forever.
    It is never flushed, so a kill loses up to 8 KiB.
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
        """Writes the trial's row in the HParams table; its metrics are the last values of their charts."""
        known = {name: value for name, value in secrecy.cleaned(knobs).items() if value is not None}
        experiment = api_pb2.Experiment(
            hparam_infos=[api_pb2.HParamInfo(name=name, type=_type(value)) for name, value in known.items()],
            metric_infos=[api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in figures],
        )
        self._write(summary=_hparams(metadata.EXPERIMENT_TAG, experiment=experiment))
        self._write(summary=hparams_pb(known, trial_id=self._name, start_time_secs=self._begun_s))

    def log(self, report: Report, metric: Metric) -> None:
        for row in charts.thinned(charts.rows(report, metric)):
            values = dict(row)
            samples = int(values.pop(metric.unit, self._samples))
            self._seconds = values.pop("seconds", self._seconds)
            is_behind, self._samples = samples < self._samples, samples
            if is_behind or self._goes_on:  # resumed from a checkpoint: later steps are repeated
                self._goes_on = False
                self._write(session_log=SessionLog(status=SessionLog.START))
            charted = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            self._write(summary=Summary(value=charted))
        if report.outcome is not None:
            self._end(report.outcome.status)

    def _end(self, status: Status) -> None:
        """Writes the final status into the HParams table; none if interrupted, as it may be resumed."""
        if status is Status.INTERRUPTED:
            return
        word = "STATUS_FAILURE" if status is Status.FAILED else "STATUS_SUCCESS"
        end = plugin_data_pb2.SessionEndInfo(status=api_pb2.Status.Value(word))
        self._write(summary=_hparams(metadata.SESSION_END_INFO_TAG, session_end_info=end))

    def close(self) -> None:
        self._writer.close()


def _type(value: Any) -> Any:
    """Returns the HParams data type of a value."""
    word = {bool: "DATA_TYPE_BOOL", str: "DATA_TYPE_STRING"}.get(type(value), "DATA_TYPE_FLOAT64")
    return api_pb2.DataType.Value(word)


def _hparams(tag: str, **content: Any) -> Summary:
    """Returns a summary of the HParams plugin under `tag`."""
    data = plugin_data_pb2.HParamsPluginData(**content)
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata.create_summary_metadata(data))])
