"""W&B runs, written from a thread, so that an unreachable or slow W&B never delays a search."""

import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import wandb

from autotune.core import files
from autotune.core.errors import printable
from autotune.core.measurement import Measurement
from autotune.core.metric import Metric
from autotune.core.secrecy import cleaned
from autotune.core.trial import Failure, Outcome, Status, Trial
from autotune.judging.decisions.history import History
from autotune.space import spaces
from autotune.trackers import overview, tags
from autotune.trackers.charts import axes, rows, summary
from autotune.trials.reported import Report

logger = logging.getLogger(__name__)

_INIT_TIMEOUT_S = 30.0
_FINISH_TIMEOUT_S = 30.0
_DRAIN_TIMEOUT_S = 90.0
_ABANDON_S = 5.0
_MOST_WAITING = 1000

_LOST = Outcome(Status.FAILED, Failure.LOST, "its process was lost")
_SUMMARY = "summary"
_EXIT_CODES = {Status.FAILED: 1, Status.INTERRUPTED: 255}  # 255 is W&B's own code for an interrupted run


class Worker:
    """Calls the methods of a `Runs` in order on a thread; logs the first exception only.

    If W&B's service has died, restarts it and repeats the call.
    """

    def __init__(self, runs: "Runs") -> None:
        self._runs = runs
        self._whose = runs.kept.whose
        self._waiting: queue.Queue[tuple[str, tuple[Any, ...]] | None] = queue.Queue(_MOST_WAITING)
        self._complained = self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="wandb", daemon=True)
        self._thread.start()

    def put(self, what: str, *args: Any) -> None:
        try:
            self._waiting.put_nowait((what, args))
        except queue.Full:
            self._complain("does not keep up; what comes now is not logged")

    def leave(self) -> None:
        """Waits for uploads to finish; kills W&B's service after a timeout."""
        if not self._close(_DRAIN_TIMEOUT_S):
            kept_in = self._runs.kept.wandb_dir
            logger.warning("W&B did not receive everything; `wandb sync` of %s uploads it", kept_in)
            self._abandon()

    def break_off(self) -> None:
        """Suppresses warnings and restarts of W&B's service from now on, as it may be killed."""
        self._complained = self._abandoned = True

    def _close(self, timeout_s: float) -> bool:
        """Drains the queue and finishes open runs; returns False if that timed out."""
        deadline = time.monotonic() + timeout_s
        try:
            self._waiting.put(("close", ()), timeout=timeout_s)
            self._waiting.put(None, timeout=max(0.0, deadline - time.monotonic()))
        except queue.Full:
            return False
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    def _abandon(self) -> None:
        """Kills W&B's service, on which the thread hangs: W&B would wait for it at exit."""
        self.break_off()
        for service in _services():
            with suppress(psutil.Error):  # it has ended by itself
                service.kill()
        self._thread.join(_ABANDON_S)

    def _run(self) -> None:
        while (call := self._waiting.get()) is not None:
            if not self._does(*call) and self._has_died() and self._does("start_anew"):
                self._does(*call)

    def _has_died(self) -> bool:
        return not self._abandoned and not _services()

    def _does(self, what: str, args: tuple[Any, ...] = ()) -> bool:
        try:
            getattr(self._runs, what)(*args)
        except Exception as error:  # noqa: BLE001 - no error of W&B may end a search
            self._complain(_line(error))
            return False
        return True

    def _complain(self, what: str) -> None:
        if not self._complained:
            logger.warning("W&B: %s; the %s continues", what, self._whose)
        self._complained = True


@dataclass(frozen=True)
class Kept:
    """Location and identity of a set of W&B runs."""

    directory: Path
    key_file: Path  # keeps a random key, so that run IDs differ from those of another session of this name
    session: str  # W&B group of all runs
    metric: Metric
    tags: tuple[str, ...]  # of every run
    whose: str = "search"  # or "training", which has a single run

    @property
    def wandb_dir(self) -> Path:
        return self.key_file.parent

    @property
    def key(self) -> str:
        """Random prefix of run IDs, created on first use and stored next to the runs."""
        if not self.key_file.exists():
            self.wandb_dir.mkdir(parents=True, exist_ok=True)
            self.key_file.write_text(secrets.token_hex(4), encoding="ascii")
        return files.read(self.key_file)

    def which(self, number: int) -> str:
        """Returns the name of a trial's run, or of the training's."""
        return f"{number:04d}" if self.whose == "search" else self.whose


class Runs:
    """Open W&B runs of trials, by number, and the session's summary run."""

    def __init__(self, kept: Kept, online: bool) -> None:
        self.kept, self._online = kept, online
        # Otherwise W&B's service reports errors home even if every run is offline.
        os.environ["WANDB_ERROR_REPORTING"] = "false"
        os.environ.setdefault("WANDB_DATA_DIR", str(kept.wandb_dir))  # not the home directory
        self._open: dict[int, wandb.Run] = {}
        self._ends: dict[int, tuple[Outcome, Measurement | None]] = {}

    def start(self, number: int, config: Mapping[str, Any]) -> None:
        if number not in self._open:
            self._open[number] = self._begin(self.kept.which(number), config)

    def _begin(self, which: str, config: Mapping[str, Any]) -> wandb.Run:
        """Starts or resumes a run; switches to offline if W&B cannot be reached."""
        try:
            return self._init(which, config)
        except Exception as error:
            if not self._online:
                raise
            logger.warning("W&B cannot be reached, so runs are kept offline: %s", _line(error))
            self._online = False
            self.start_anew()
            return self._init(which, config)

    def start_anew(self) -> None:
        """Restarts W&B's service and all open runs: the service keeps a run that failed to start."""
        with suppress(OSError):  # it has ended
            wandb.teardown()
        self._open = {n: self._init(self.kept.which(n), dict(run.config)) for n, run in self._open.items()}

    def _init(self, which: str, config: Mapping[str, Any]) -> wandb.Run:
        wandb.setup(settings=wandb.Settings(silent=True))  # otherwise the login prints
        run = wandb.init(
            id=f"{self.kept.key}-{which}",
            name=f"{self.kept.session}-{which}",
            group=self.kept.session,
            job_type=which if which in {_SUMMARY, self.kept.whose} else "trial",
            project=os.environ.get("WANDB_PROJECT", "autotune"),
            tags=tags.of_trial(self.kept.tags, config),
            config=cleaned(config),
            dir=str(self.kept.directory),
            mode="online" if self._online else "offline",
            reinit="create_new",
            resume="allow",
            settings=_settings(),
        )
        for axis, groups in axes(self.kept.metric.unit).items():
            run.define_metric(axis, hidden=True)
            for group in groups:
                run.define_metric(group, step_metric=axis)
        return run

    def log(self, report: Report) -> None:
        if report.outcome is not None:
            self._ends[report.number] = report.outcome, report.measurement
        if run := self._open.get(report.number):
            for row in rows(report, self.kept.metric):
                run.log(row)

    def end(self, number: int, failed: bool) -> None:
        """Finishes a run with the outcome of its last report, by default as lost or interrupted.

        If the trial `failed`, its run is marked failed even if the last report says interrupted.
        """
        broken_off = Outcome(Status.INTERRUPTED, reason=f"the {self.kept.whose} was stopped")
        outcome, measurement = self._ends.get(number, (_LOST if failed else broken_off, None))
        if failed and outcome.status is Status.INTERRUPTED:
            outcome = replace(outcome, status=Status.FAILED)
        if run := self._open.get(number):
            run.summary.update(summary(outcome, measurement, self.kept.metric))
            run.finish(exit_code=_EXIT_CODES.get(outcome.status, 0))
        self._open.pop(number, None)
        self._ends.pop(number, None)

    def summarise(self, history: History, report: Path) -> None:
        """Logs winner, baseline, trials, Pareto front, and the `report` as an artifact."""
        run = self._begin(_SUMMARY, spaces.to_values(history.space))
        try:
            run.summary.update(overview.figures(history))
            run.log(_tables(history))
            if report.is_file():
                artifact = wandb.Artifact(f"report-{self.kept.key}", type="report")
                artifact.add_file(str(report), skip_cache=True)
                run.log_artifact(artifact)
        finally:
            run.finish()

    def close(self) -> None:
        """Finishes all open runs and stops W&B's service."""
        try:
            for number in list(self._open):
                self.end(number, failed=False)
        finally:
            wandb.teardown()


def _tables(history: History) -> dict[str, Any]:
    """Returns the tables of trials and Pareto front, and a scatter plot of the two objectives, by name."""
    trials, quality = history.trials, history.space.objective.quality
    points = [t for t in trials if t.samples_per_s is not None and t.quality is not None]
    return {
        "trials": _table(trials, history),
        "front": _table(history.front, history),
        "throughput_and_quality": wandb.plot.scatter(
            _table(points, history), "throughput", quality, f"throughput and {quality}"
        ),
    }


def _table(trials: Sequence[Trial], history: History) -> wandb.Table:
    table = overview.table(trials, history)
    return wandb.Table(columns=list(table.columns), data=[list(row) for row in table.rows])


def _services() -> list[psutil.Process]:
    """Returns the live W&B service processes started by this process."""
    return [child for child in psutil.Process().children() if _is_service(child)]


def _is_service(process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # it has ended meanwhile
        return process.name() == "wandb-core" and process.status() != psutil.STATUS_ZOMBIE
    return False


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


def _line(error: Exception) -> str:
    text = printable(cleaned(str(error)))
    return " ".join(text.split())[:300] or type(error).__name__
