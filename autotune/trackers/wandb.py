"""W&B's runs: online, or offline in the session."""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import wandb

from autotune.core.measurement import Measurement
from autotune.core.secrecy import wandb_is_online, without_secrets
from autotune.core.trial import Outcome, Status, Trial
from autotune.judging.decisions.history import History
from autotune.space import spaces
from autotune.trackers import charts, overview
from autotune.trackers.tracker import SUMMARY, TRAINING, Context, Tracker, run_tags
from autotune.trackers.tracking import error_line
from autotune.trials.report import TrialReport

logger = logging.getLogger(__name__)

_INIT_TIMEOUT_S = 30.0
_FINISH_TIMEOUT_S = 30.0

_EXIT_CODES = {Status.FAILED: 1, Status.INTERRUPTED: 255}  # 255 is W&B's own code for an interrupted run


class Wandb(Tracker):
    """Logs a W&B run per trial, in the group of the session; a resumed trial continues its run."""

    title = "W&B"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._online = wandb_is_online(context.wandb, os.environ)
        self._directory = context.place.tracker_dir("wandb")
        self._open: dict[str, wandb.Run] = {}
        # Otherwise W&B's service reports errors home even if every run is offline.
        os.environ["WANDB_ERROR_REPORTING"] = "false"
        os.environ.setdefault("WANDB_DATA_DIR", str(self._directory))  # not the home directory

    def begin(self, run: str, settings: Mapping[str, Any]) -> None:
        """Starts or resumes a run; switches to offline runs if W&B cannot be reached."""
        try:
            self._open[run] = self._init(run, settings)
        except Exception as error:
            if not self._online:
                raise
            logger.warning("W&B cannot be reached, so runs are kept offline: %s", error_line(error))
            self._online = False
            self._start_anew()
            self._open[run] = self._init(run, settings)

    def recover(self) -> bool:
        if _services():
            return False
        self._start_anew()
        return True

    def _start_anew(self) -> None:
        """Restarts W&B's service, which would keep a run that failed to start, and then all open runs."""
        with suppress(OSError):  # it has ended
            wandb.teardown()
        self._open = {name: self._init(name, dict(run.config)) for name, run in self._open.items()}

    def _init(self, run: str, config: Mapping[str, Any]) -> wandb.Run:
        context, config = self.context, dict(without_secrets(config))
        wandb.setup(settings=wandb.Settings(silent=True))  # otherwise the login prints
        begun = wandb.init(
            id=f"{context.key('wandb')}-{run}",
            name=f"{context.group}-{run}",
            group=context.group,
            job_type=run if run in {SUMMARY, TRAINING} else "trial",
            project=os.environ.get("WANDB_PROJECT", "autotune"),
            tags=run_tags(context.tags, config),
            config=config,
            dir=str(self._directory.parent),
            mode="online" if self._online else "offline",
            reinit="create_new",
            resume="allow",
            settings=_settings(),
        )
        for axis, groups in charts.axes(context.metric.unit).items():
            begun.define_metric(axis, hidden=True)
            for group in groups:
                begun.define_metric(group, step_metric=axis)
        return begun

    def log(self, run: str, report: TrialReport) -> None:
        if begun := self._open.get(run):
            for row in charts.rows(report, self.context.metric):
                begun.log(row)

    def end(self, run: str, outcome: Outcome, measurement: Measurement | None) -> None:
        if begun := self._open.get(run):
            begun.summary.update(charts.summary(outcome, measurement, self.context.metric))
            begun.finish(exit_code=_EXIT_CODES.get(outcome.status, 0))
            del self._open[run]

    def summarise(self, history: History, report_file: Path) -> None:
        """Logs winner, baseline, trials, Pareto front, and the report as an artifact."""
        self.begin(SUMMARY, spaces.to_values(history.space))
        run = self._open.pop(SUMMARY)  # not open for `recover`, which would restart it
        trials, quality = history.trials, history.space.objective.quality
        both = [t for t in trials if t.samples_per_s is not None and t.quality is not None]
        try:
            run.summary.update(overview.figures(history))
            points, title = _table(both, history), f"throughput and {quality}"
            tables = {
                "trials": _table(trials, history),
                "front": _table(history.front, history),
                "throughput_and_quality": wandb.plot.scatter(points, "throughput", quality, title),
            }
            run.log(tables)
            if report_file.is_file():
                artifact = wandb.Artifact(f"report-{self.context.key('wandb')}", type="report")
                artifact.add_file(str(report_file), skip_cache=True)
                run.log_artifact(artifact)
        finally:
            run.finish()

    def close(self) -> None:
        wandb.teardown()

    def abandon(self) -> str:
        """Kills W&B's service, for which the thread waits, since W&B would wait for it at exit too."""
        for service in _services():
            with suppress(psutil.Error):  # it has ended by itself
                service.kill()
        return f"; `wandb sync` of {self._directory} uploads it"


def _table(trials: Sequence[Trial], history: History) -> wandb.Table:
    columns = overview.table(trials, history)
    return wandb.Table(columns=list(columns), data=[list(row) for row in zip(*columns.values(), strict=True)])


def _services() -> list[psutil.Process]:
    services = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has ended meanwhile
            if child.name() == "wandb-core" and child.status() != psutil.STATUS_ZOMBIE:
                services.append(child)
    return services


def _settings() -> wandb.Settings:
    """Returns settings that keep W&B silent and send nothing about machine, user or code."""
    return wandb.Settings(
        console="off",
        silent=True,
        disable_code=True,
        disable_git=True,
        disable_job_creation=True,
        host="",
        init_timeout=_INIT_TIMEOUT_S,
        finish_timeout=_FINISH_TIMEOUT_S,
        stop_fn=lambda: None,  # a run stopped in the browser would send this process a SIGINT
        symlink=False,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
        x_transaction_log_flush_interval=1.0,  # what a kill can lose, in seconds
    )
