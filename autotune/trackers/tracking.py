"""Weights & Biases: one run for each trial and one for the session, written in the driver."""

import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import wandb
from ray.air.integrations.wandb import WandbLoggerCallback

from autotune.core.errors import printable
from autotune.core.secrecy import cleaned, wandb_is_online
from autotune.core.trial import Failure, Measurement, Outcome, Status, Trial
from autotune.judging.history import History
from autotune.space import space as spaces
from autotune.storage.store import Session
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
_BROKEN_OFF = Outcome(Status.INTERRUPTED, reason="the search was stopped")
_SUMMARY = "summary"
_EXIT_CODES = {Status.FAILED: 1, Status.INTERRUPTED: 255}  # 255 is W&B's own code for an interrupted run


class Tracker(WandbLoggerCallback):
    """Ray's W&B callback, but that its runs live in this process, in `directory`/wandb.

    A run is known by the session and the trial's number: going on with a trial goes on with its run. A thread
    talks to W&B: when that is away, slow or broken, the search does not notice and the log says so once. What
    was logged is with W&B, or on the disk, when the `with` is left.
    """

    def __init__(
        self,
        directory: Path,
        session: str,
        mode: str = "auto",
        *,
        project: str = "autotune",
        unit: str = "samples",
        tags: Sequence[str] = (),
    ) -> None:
        super().__init__(project=os.environ.get("WANDB_PROJECT", project), group=session)
        self._directory, self._unit, self._tags = directory, unit, tuple(tags)
        self._online = wandb_is_online(mode, os.environ)
        self._worker: _Worker | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_worker": None}

    def _do(self, what: str, *args: Any) -> None:
        if self._worker is None:
            kept = _Kept(self._directory, str(self.group), str(self.project), self._unit, self._tags)
            self._worker = _Worker(_Runs(kept, self._online))
        self._worker.put(what, *args)

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the base class would ask for a key."""

    def log_trial_start(self, trial: Any) -> None:
        self._do("start", trial.config["number"], dict(trial.config["config"]))

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:  # noqa: ARG002
        self._do("log", Report.from_dict(result))

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        self._do("end", trial.config["number"], failed)

    def log_trial_save(self, trial: Any) -> None:
        """Nothing: checkpoints stay in the session."""

    def on_experiment_end(self, trials: Sequence[Any], **info: Any) -> None:
        """Nothing: Tune may be started again, and the session's own run is still to come."""

    def summarise(self, history: History, report: Path) -> None:
        """Brings the session's own run up to date; with the `report`, if there is one."""
        self._do("summarise", history, report)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Waits for W&B to have everything, but not for ever; nothing of it is left."""
        worker, self._worker = self._worker, None
        if worker is not None and not worker.close(_DRAIN_TIMEOUT_S):
            logger.warning(
                "W&B did not receive everything; `wandb sync` of %s uploads it",
                Session(self._directory).wandb_dir,
            )
            worker.abandon()

    def __del__(self) -> None:
        """Nothing: the base class would ask Ray about actors that are not there."""


class _Worker:
    """Calls the methods of a `_Runs` one after the other in a thread; what they raise is logged once.

    Where they raise because W&B's service has died, it is started anew and the method called again.
    """

    def __init__(self, runs: "_Runs") -> None:
        self._runs = runs
        self._waiting: queue.Queue[tuple[str, tuple[Any, ...]] | None] = queue.Queue(_MOST_WAITING)
        self._complained = self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="wandb", daemon=True)
        self._thread.start()

    def put(self, what: str, *args: Any) -> None:
        try:
            self._waiting.put_nowait((what, args))
        except queue.Full:
            self._complain("does not keep up; what comes now is not logged")

    def close(self, timeout_s: float) -> bool:
        """Lets what waits be done and open runs be finished; whether that was done in time."""
        deadline = time.monotonic() + timeout_s
        try:
            self._waiting.put(("close", ()), timeout=timeout_s)
            self._waiting.put(None, timeout=max(0.0, deadline - time.monotonic()))
        except queue.Full:
            return False
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    def abandon(self) -> None:
        """Kills W&B's service, on which the thread hangs; W&B would wait for it when this process ends."""
        self._complained = self._abandoned = True
        for service in _services():
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
        except Exception as error:  # noqa: BLE001 - whatever W&B raises, the search goes on
            self._complain(_line(error))
            return False
        return True

    def _complain(self, what: str) -> None:
        if not self._complained:
            logger.warning("W&B: %s; the search continues", what)
        self._complained = True


@dataclass(frozen=True)
class _Kept:
    """Where runs lie, and what they are known by: every run of a session has its `tags`."""

    directory: Path
    session: str
    project: str
    unit: str
    tags: tuple[str, ...]


class _Runs:
    """The W&B runs of the trials that are running, by number; and the session's own."""

    def __init__(self, kept: _Kept, online: bool) -> None:
        self._kept, self._online = kept, online
        # Or else W&B's service calls home, even when every run is offline.
        os.environ["WANDB_ERROR_REPORTING"] = "false"
        os.environ.setdefault(
            "WANDB_DATA_DIR", str(Session(kept.directory).wandb_dir)
        )  # or else reports lie in the home
        self._open: dict[int, wandb.Run] = {}
        self._ends: dict[int, tuple[Outcome, Measurement | None]] = {}

    def start(self, number: int, config: Mapping[str, Any]) -> None:
        if number not in self._open:
            self._open[number] = self._begin(f"{number:04d}", {**config, "trial": number})

    def _begin(self, which: str, config: Mapping[str, Any]) -> wandb.Run:
        """A run that is new or gone on with; offline where W&B cannot be reached."""
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
        """Starts W&B's service anew, and every open run: the service holds on to one that failed to start."""
        with suppress(OSError):  # it is gone
            wandb.teardown()
        self._open = {n: self._init(f"{n:04d}", dict(run.config)) for n, run in self._open.items()}

    def _init(self, which: str, config: Mapping[str, Any]) -> wandb.Run:
        wandb.setup(settings=wandb.Settings(silent=True))  # or else the login speaks
        run = wandb.init(
            id=f"{_session_key(self._kept.directory)}-{which}",
            name=f"{self._kept.session}-{which}",
            group=self._kept.session,
            job_type=_SUMMARY if which == _SUMMARY else "trial",
            project=self._kept.project,
            tags=tags.of_trial(self._kept.tags, config),
            config=cleaned(config),
            dir=str(self._kept.directory),
            mode="online" if self._online else "offline",
            reinit="create_new",
            resume="allow",
            settings=_settings(),
        )
        for axis, groups in axes(self._kept.unit).items():
            run.define_metric(axis, hidden=True)
            for group in groups:
                run.define_metric(group, step_metric=axis)
        return run

    def log(self, report: Report) -> None:
        if report.outcome is not None:
            self._ends[report.number] = report.outcome, report.measurement
        if run := self._open.get(report.number):
            for row in rows(report, self._kept.unit):
                run.log(row)

    def end(self, number: int, failed: bool) -> None:
        """Finishes a run: as its last report says, and if that has no outcome, as lost or interrupted."""
        outcome, shown = self._ends.get(number, (_LOST if failed else _BROKEN_OFF, None))
        if run := self._open.get(number):
            run.summary.update(summary(outcome, shown, self._kept.unit))
            run.finish(exit_code=_EXIT_CODES.get(outcome.status, 0))
        self._open.pop(number, None)
        self._ends.pop(number, None)

    def summarise(self, history: History, report: Path) -> None:
        """Logs the winner beside the baseline, the trials, their front, and the `report` as an artifact."""
        run = self._begin(_SUMMARY, spaces.to_values(history.space))
        try:
            run.summary.update(overview.figures(history))
            run.log(_tables(history))
            if report.is_file():
                artifact = wandb.Artifact(f"report-{_session_key(self._kept.directory)}", type="report")
                artifact.add_file(str(report), skip_cache=True)
                run.log_artifact(artifact)
        finally:
            run.finish()

    def close(self) -> None:
        """Finishes the runs of trials that have not ended, and W&B's service."""
        try:
            for number in list(self._open):
                self.end(number, failed=False)
        finally:
            wandb.teardown()


def _tables(history: History) -> dict[str, Any]:
    """The trials, their front, and a chart of the two objectives, under their names in the session's run."""
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
    found = overview.table(trials, history)
    return wandb.Table(columns=list(found.columns), data=[list(row) for row in found.rows])


def _services() -> list[psutil.Process]:
    """W&B's own processes that this one has started and that are alive."""
    children = psutil.Process().children()
    return [p for p in children if p.name() == "wandb-core" and p.status() != psutil.STATUS_ZOMBIE]


def _settings() -> wandb.Settings:
    """Silent, and with nothing about the machine, its user or their code."""
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


def _session_key(directory: Path) -> str:
    """What tells this session's runs from another's of the same name: random, and kept beside the runs."""
    file = Session(directory).wandb_key_file
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(secrets.token_hex(4), encoding="ascii")
    return file.read_text(encoding="ascii")


def _line(error: Exception) -> str:
    text = printable(cleaned(str(error)))
    return " ".join(text.split())[:300] or type(error).__name__
