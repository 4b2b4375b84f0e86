"""MLflow's runs: in a database in the session, or on the server that MLFLOW_TRACKING_URI names."""

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.core.measurement import Measurement
from autotune.core.secrecy import without_secrets
from autotune.core.trial import Outcome, Status
from autotune.judging.decisions.history import History
from autotune.trackers import charts, overview
from autotune.trackers.tracker import SUMMARY, Context, Tracker
from autotune.trials.report import TrialReport

if TYPE_CHECKING:
    from mlflow import MlflowClient

_URI = "MLFLOW_TRACKING_URI"
_STATUS = {Status.FAILED: "FAILED", Status.INTERRUPTED: "KILLED"}
_IDENTITY = "autotune.run"  # tag by which a resumed trial finds its run
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")


@dataclass
class _Open:
    id: str
    start_ms: int
    step: int = 0  # of the last metrics
    seconds: float = 0.0


class Mlflow(Tracker):
    """Logs an MLflow run per trial; a resumed trial continues its run. Steps count the work done."""

    title = "MLflow"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when MLflow is imported
        import mlflow  # noqa: PLC0415

        self._mlflow = mlflow
        self._open: dict[str, _Open] = {}
        for name in ("mlflow", "alembic"):  # they announce each step of creating a database
            logging.getLogger(name).setLevel(logging.ERROR)

    @cached_property
    def _client(self) -> "MlflowClient":
        directory = self.context.place.tracker_dir("mlflow")
        directory.mkdir(parents=True, exist_ok=True)
        return self._mlflow.MlflowClient(os.environ.get(_URI) or f"sqlite:///{directory}/mlflow.db")

    @cached_property
    def _experiment_id(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "autotune"
        if experiment := self._client.get_experiment_by_name(name):
            return str(experiment.experiment_id)
        directory = self.context.place.tracker_dir("mlflow") / "artifacts"
        place = None if os.environ.get(_URI) else directory.as_uri()  # else in the current directory
        return str(self._client.create_experiment(name, artifact_location=place))

    def begin(self, run: str, settings: Mapping[str, Any]) -> None:
        """Starts a run with its settings, or reopens it with its old ones, which MLflow cannot change."""
        identity = f"{self.context.key('mlflow')}-{run}"
        earlier = self._client.search_runs([self._experiment_id], f"tags.`{_IDENTITY}` = '{identity}'")
        if earlier:
            info = earlier[0].info
            self._client.update_run(info.run_id, status="RUNNING")
            self._open[run] = _Open(info.run_id, info.start_time)
            return
        tags = {_IDENTITY: identity, "session": self.context.group, "tags": ", ".join(self.context.tags)}
        name = f"{self.context.group}-{run}"
        info = self._client.create_run(self._experiment_id, tags=tags, run_name=name).info
        self._open[run] = _Open(info.run_id, info.start_time)
        params = [self._mlflow.entities.Param(_name(k), str(v)) for k, v in without_secrets(settings).items()]
        self._client.log_batch(self._open[run].id, params=params)

    def log(self, run: str, report: TrialReport) -> None:
        for row in charts.thin(charts.rows(report, self.context.metric)):
            self._log(run, row)

    def _log(self, run: str, figures: Mapping[str, Any]) -> None:
        """Logs numbers as metrics, at the step and the time that are among them, and texts as tags."""
        if begun := self._open.get(run):
            values = dict(figures)
            begun.step = int(values.pop(self.context.metric.unit, begun.step))
            begun.seconds = values.pop("seconds", begun.seconds)
            at_ms, entities = begun.start_ms + int(1000 * begun.seconds), self._mlflow.entities
            metrics, tags = [], []
            for name, value in values.items():
                if isinstance(value, str):
                    tags.append(entities.RunTag(name, value))
                elif isinstance(value, int | float):
                    metrics.append(entities.Metric(_name(name), float(value), at_ms, begun.step))
            self._client.log_batch(begun.id, metrics=metrics, tags=tags)

    def end(self, run: str, outcome: Outcome, measurement: Measurement | None) -> None:
        """Logs the figures of the whole run as the last points of its charts, and the outcome as tags."""
        self._log(run, charts.summary(outcome, measurement, self.context.metric))
        if begun := self._open.pop(run, None):
            self._client.set_terminated(begun.id, _STATUS.get(outcome.status, "FINISHED"))

    def summarise(self, history: History, report_file: Path) -> None:
        """Logs winner, baseline and gain, the trials and the Pareto front as JSON, and the report."""
        self.begin(SUMMARY, {})
        self._log(SUMMARY, overview.figures(history))
        run_id = self._open.pop(SUMMARY).id
        for name, trials in {"trials": history.trials, "front": history.front}.items():
            self._client.log_dict(run_id, overview.table(trials, history), f"{name}.json")
        if report_file.is_file():
            self._client.log_artifact(run_id, str(report_file))
        self._client.set_terminated(run_id)


def _name(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name)
