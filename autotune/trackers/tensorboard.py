"""TensorBoard's event files, one folder per run."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from autotune.core import secrecy
from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Status
from autotune.trackers import charts
from autotune.trackers.tracker import TRAINING, Context, Tracker
from autotune.trials.report import TrialReport

_PREFIX = "events.out.tfevents."  # followed by the creation time in ns: TensorBoard reads files in that order


class TensorBoard(Tracker):
    """Writes event files, one per attempt at a run; steps count the work done."""

    title = "TensorBoard"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._open: dict[str, _File] = {}

    def begin(self, run: str, settings: Mapping[str, Any]) -> None:
        """Writes the run's row in the HParams table; its metrics are the last values of their charts."""
        folder = self.context.place.root.name if run == TRAINING else run
        self._open[run] = file = _File(self.context.place.tracker_dir("tensorboard") / folder)
        file.write(file_version="brain.Event:2")
        names = [name for name in self.context.knobs or settings if settings[name] is not None]
        hparams = secrecy.without_secrets({name: settings[name] for name in names})
        infos = []
        for name, value in hparams.items():
            word = {bool: "DATA_TYPE_BOOL", str: "DATA_TYPE_STRING"}.get(type(value), "DATA_TYPE_FLOAT64")
            infos.append(api_pb2.HParamInfo(name=name, type=api_pb2.DataType.Value(word)))
        figures = ("perf/throughput", charts.score(self.context.metric.name), "memory/peak_bytes")
        experiment = api_pb2.Experiment(
            hparam_infos=infos,
            metric_infos=[api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in figures],
        )
        file.write(summary=_hparams(metadata.EXPERIMENT_TAG, experiment=experiment))
        file.write(summary=hparams_pb(hparams, trial_id=folder, start_time_secs=file.begun_s))

    def log(self, run: str, report: TrialReport) -> None:
        if file := self._open.get(run):
            for row in charts.thin(charts.rows(report, self.context.metric)):
                values = dict(row)
                samples = int(values.pop(self.context.metric.unit, file.samples))
                file.seconds = values.pop("seconds", file.seconds)
                is_behind, file.samples = samples < file.samples, samples
                if is_behind or file.is_resumed:  # from a checkpoint: later steps are repeated
                    file.is_resumed = False
                    file.write(session_log=SessionLog(status=SessionLog.START))
                charted = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
                file.write(summary=Summary(value=charted))

    def end(self, run: str, outcome: Outcome, measurement: Measurement | None) -> None:  # noqa: ARG002
        """Closes the file; writes the status for the HParams table first, unless the run may be resumed."""
        if file := self._open.pop(run, None):
            if outcome.status is not Status.INTERRUPTED:
                word = "STATUS_FAILURE" if outcome.status is Status.FAILED else "STATUS_SUCCESS"
                info = plugin_data_pb2.SessionEndInfo(status=api_pb2.Status.Value(word))
                file.write(summary=_hparams(metadata.SESSION_END_INFO_TAG, session_end_info=info))
            file.close()


class _File:
    """The event file of one attempt at a run; its clock is the trial's."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        now_ns = time.time_ns()
        known_ns = [int(file.name.removeprefix(_PREFIX)) for file in directory.glob(f"{_PREFIX}*")]
        self.begun_s = min([now_ns, *known_ns]) / 1e9
        self.samples, self.seconds = 0, 0.0  # of the last row
        self.is_resumed, self._is_torn = bool(known_ns), False
        # Not EventFileWriter: a full disk ends its thread, on which every caller then blocks forever.
        # What this writes is never flushed, so a kill loses up to 8 KiB.
        self._writer = RecordWriter((directory / f"{_PREFIX}{now_ns}").open("wb"))

    def write(self, **content: Any) -> None:
        event = Event(wall_time=self.begun_s + self.seconds, step=self.samples, **content)
        was_torn, self._is_torn = self._is_torn, True
        if not was_torn:  # readers stop at a torn record
            self._writer.write(event.SerializeToString())
            self._is_torn = False

    def close(self) -> None:
        self._writer.close()


def _hparams(tag: str, **content: Any) -> Summary:
    data = plugin_data_pb2.HParamsPluginData(**content)
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata.create_summary_metadata(data))])
