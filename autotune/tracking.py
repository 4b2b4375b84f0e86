"""Weights & Biases: one run for each trial, written in the driver, online or offline, never in the search's way."""

import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import wandb
from ray.air.integrations.wandb import WandbLoggerCallback

from autotune.errors import InputError
from autotune.trial import Status

logger = logging.getLogger(__name__)

_INIT_TIMEOUT_S = 30.0
_FINISH_TIMEOUT_S = 30.0
_DRAIN_TIMEOUT_S = 90.0
_MOST_WAITING = 1000
_INTERRUPTED = 255  # W&B's own exit code for it

_NAMES = {
    "samples": "samples",
    "elapsed_s": "seconds",
    "throughput": "perf/throughput",
    "learning_rate": "train/learning_rate",
    "grad_norm": "train/grad_norm",
    "peak_memory_bytes": "memory/peak_bytes",
    "cpu_percent": "system/cpu_percent",
    "host_rss_bytes": "system/host_rss_bytes",
    "host_memory_percent": "system/host_memory_percent",
}
_GROUPS = {"train_": "train/", "val_": "val/", "memory_": "memory/", "gpu_": "gpu/"}
_AXES = {"samples": ("train/*", "val/*", "perf/*"), "seconds": ("memory/*", "gpu/*", "system/*")}
_CLOCK = "at_s"


def metrics(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers in a record, or among a result's own values, under the names that the charts have.

    What is not known by name is a training metric beside a `train_loss`, and a validation score elsewhere.
    """
    other = "train/" if "train_loss" in values else "val/"
    return {
        _name(key, other): float(value)
        for key, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and key != _CLOCK
    }


def _name(key: str, other: str) -> str:
    if key in _NAMES:
        return _NAMES[key]
    for prefix, group in _GROUPS.items():
        if key.startswith(prefix):
            return group + key.removeprefix(prefix)
    return ("perf/" if key.endswith("_s") else other) + key


def rows(result: Mapping[str, Any]) -> list[dict[str, float]]:
    """A result as lines of the run's history: one for each record, then one for the trial as a whole."""
    records: Sequence[Mapping[str, Any]] = result.get("records", ())
    end_s = result["elapsed_s"]
    last_at_s = records[-1].get(_CLOCK, 0.0) if records else 0.0
    own = {key: result.get(key) for key in ("samples", "elapsed_s", "throughput", "peak_memory_bytes")}
    return [
        *(metrics(r) | {"seconds": end_s - (last_at_s - r.get(_CLOCK, last_at_s))} for r in records),
        metrics({**own, **result.get("telemetry", {})}),
    ]


def summary(outcome: Mapping[str, Any], measurement: Mapping[str, Any]) -> dict[str, Any]:
    """What the run is to be known by: how the trial ended and why, and its figures over the whole trial."""
    throughput = measurement.get("throughput") or {}
    peak, limit = measurement.get("peak_memory_bytes"), measurement.get("memory_limit_bytes")
    share = peak / limit if peak and limit else None
    figures = {
        "throughput": throughput.get("samples_per_s"),
        "samples": measurement.get("samples"),
        "peak_memory_bytes": peak,
        "memory_peak_share": share,
        **measurement.get("scores", {}),
        **measurement.get("telemetry", {}),
    }
    verdict = {key: outcome.get(key) or "" for key in ("status", "failure", "reason")}
    return {**metrics(figures), **{key: _without_home(str(value)) for key, value in verdict.items()}}


def is_online(asked: str, environment: Mapping[str, str]) -> bool:
    """Whether runs go to the server: `auto` does so where WANDB_API_KEY is set and WANDB_MODE does not forbid.

    Raises InputError when `online` is asked for without a key.
    """
    has_key = bool(environment.get("WANDB_API_KEY"))
    if asked == "online" and not has_key:
        raise InputError("--wandb online: needs WANDB_API_KEY in the environment, which is not set")
    if asked == "auto":
        return has_key and environment.get("WANDB_MODE", "online") == "online"
    return asked == "online"


class Tracker(WandbLoggerCallback):
    """Ray's W&B callback, but that its runs live in this process, in `directory`/wandb.

    A run is known by the session and the trial's number: going on with a trial goes on with its run. W&B is
    talked to in a thread: when it is away, slow or broken, the search does not notice and the log says so once.
    """

    def __init__(self, directory: Path, session: str, mode: str = "auto", project: str = "autotune") -> None:
        super().__init__(project=os.environ.get("WANDB_PROJECT", project), group=session)
        self._directory = directory
        self._online = is_online(mode, os.environ)
        self._worker: _Worker | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_worker": None}

    def _do(self, what: str, *args: Any) -> None:
        if self._worker is None:
            runs = _Runs(self._directory, str(self.group), str(self.project), self._online)
            self._worker = _Worker(runs)
        self._worker.put(what, *args)

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the base class would ask for a key."""

    def log_trial_start(self, trial: Any) -> None:
        self._do("start", trial.config["number"], dict(trial.config["config"]))

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        self._do("log", trial.config["number"], dict(result))

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        self._do("end", trial.config["number"], failed)

    def log_trial_save(self, trial: Any) -> None:
        """Nothing: checkpoints stay in the session."""

    def on_experiment_end(self, trials: Sequence[Any], **info: Any) -> None:
        """Waits for W&B to have everything, but not for ever."""
        worker, self._worker = self._worker, None
        if worker is not None and not worker.close(_DRAIN_TIMEOUT_S):
            logger.warning(
                "W&B has not taken everything; `wandb sync` of %s uploads it", self._directory / "wandb"
            )

    def __del__(self) -> None:
        """Nothing: the base class would ask Ray about actors that are not there."""


class _Worker:
    """Calls the methods of a `_Runs` one after the other in a thread; what they raise is logged once."""

    def __init__(self, runs: "_Runs") -> None:
        self._runs = runs
        self._waiting: queue.Queue[tuple[str, tuple[Any, ...]] | None] = queue.Queue(_MOST_WAITING)
        self._complained = False
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

    def _run(self) -> None:
        while (call := self._waiting.get()) is not None:
            what, args = call
            try:
                getattr(self._runs, what)(*args)
            except Exception as error:  # noqa: BLE001 - whatever W&B raises, the search goes on
                self._complain(_line(error))

    def _complain(self, what: str) -> None:
        if not self._complained:
            logger.warning("W&B: %s; the search goes on", what)
        self._complained = True


class _Runs:
    """The W&B runs of the trials that are running, by number."""

    def __init__(self, directory: Path, session: str, project: str, online: bool) -> None:
        self._directory, self._session, self._project = directory, session, project
        self._online = online
        self._open: dict[int, wandb.Run] = {}
        self._ends: dict[int, Mapping[str, Any]] = {}

    def start(self, number: int, config: Mapping[str, Any]) -> None:
        if number in self._open:
            return
        run = self._init(number, config)
        for axis, groups in _AXES.items():
            run.define_metric(axis, hidden=True)
            for group in groups:
                run.define_metric(group, step_metric=axis)
        self._open[number] = run

    def _init(self, number: int, config: Mapping[str, Any]) -> wandb.Run:
        if self._online:
            try:
                return self._init_in("online", number, config)
            except Exception as error:  # noqa: BLE001 - then offline, where nothing is lost
                self._online = False
                logger.warning("W&B cannot be reached, so runs are kept offline: %s", _line(error))
        return self._init_in("offline", number, config)

    def _init_in(
        self, mode: Literal["online", "offline"], number: int, config: Mapping[str, Any]
    ) -> wandb.Run:
        values = {key: _without_home(v) if isinstance(v, str) else v for key, v in config.items()}
        wandb.setup(settings=wandb.Settings(silent=True))  # or else the login speaks
        return wandb.init(
            id=f"{_session_key(self._directory)}-{number:04d}",
            name=f"{self._session}-{number:04d}",
            group=self._session,
            project=self._project,
            config={**values, "trial": number},
            dir=str(self._directory),
            mode=mode,
            reinit="create_new",
            resume="allow",
            settings=_settings(),
        )

    def log(self, number: int, result: Mapping[str, Any]) -> None:
        if "outcome" in result:
            self._ends[number] = result
        run = self._open.get(number)
        for row in rows(result) if run else ():
            run.log(row)

    def end(self, number: int, failed: bool) -> None:
        lost = {"outcome": {"status": Status.FAILED, "reason": "its process was lost"}} if failed else {}
        result = self._ends.pop(number, lost)
        outcome = result.get("outcome", {"status": "interrupted"})
        code = 0 if outcome["status"] != Status.FAILED else 1
        self._finish(
            number, summary(outcome, result.get("measurement", {})), code if result else _INTERRUPTED
        )

    def _finish(self, number: int, final: Mapping[str, Any], exit_code: int) -> None:
        run = self._open.pop(number, None)
        if run is not None:
            run.summary.update(final)
            run.finish(exit_code=exit_code)

    def close(self) -> None:
        """Finishes the runs of trials that have not ended."""
        for number in list(self._open):
            self.end(number, failed=False)


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
    file = directory / "wandb" / "session-key"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(secrets.token_hex(4), encoding="ascii")
    return file.read_text(encoding="ascii")


def _without_home(text: str) -> str:
    """`text` without the user's name in paths."""
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
