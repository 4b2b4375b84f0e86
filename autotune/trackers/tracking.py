"""W&B logging of a search: one run per trial and one for the session, written by the driver."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ray.air.integrations.wandb import WandbLoggerCallback

from autotune.core.metric import Metric
from autotune.core.secrecy import wandb_is_online
from autotune.judging.decisions.history import History
from autotune.storage.store import Session
from autotune.trackers.runs import Kept, Runs, Worker
from autotune.trials.reported import Report


class Tracker(WandbLoggerCallback):
    """Ray's W&B callback, with its runs in this process, in `directory`/wandb.

    A run's ID is made of session and trial number, so resuming a trial resumes its run. A thread talks to
    W&B: if W&B is unreachable or fails, the search goes on and one warning is logged. Leaving the `with`
    waits until everything is uploaded or on disk.
    """

    def __init__(
        self,
        directory: Path,
        session: str,
        mode: str = "auto",
        *,
        metric: Metric,
        tags: Sequence[str] = (),
    ) -> None:
        super().__init__(group=session)
        self._directory = directory
        self._known_by = session, metric, tuple(tags)
        self._online = wandb_is_online(mode, os.environ)
        self._worker: Worker | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_worker": None}

    def _do(self, what: str, *args: Any) -> None:
        if self._worker is None:
            key_file = Session(self._directory).wandb_key_file
            self._worker = Worker(Runs(Kept(self._directory, key_file, *self._known_by), self._online))
        self._worker.put(what, *args)

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the base class would ask for an API key."""

    def log_trial_start(self, trial: Any) -> None:
        number = trial.config["number"]
        self._do("start", number, {**trial.config["config"], "trial": number})

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:  # noqa: ARG002
        self._do("log", Report.from_dict(result))

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        self._do("end", trial.config["number"], failed)

    def log_trial_save(self, trial: Any) -> None:
        """Does nothing: checkpoints stay in the session."""

    def on_experiment_end(self, trials: Sequence[Any], **info: Any) -> None:
        """Does nothing: Tune may be started again, and the session's own run is written later."""

    def summarise(self, history: History, report: Path) -> None:
        """Updates the session's own run, with the `report` if that file exists."""
        self._do("summarise", history, report)

    def break_off(self) -> None:
        """Expects W&B's service to be killed: later losses are not reported."""
        if self._worker is not None:
            self._worker.break_off()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Waits for uploads to finish; kills W&B's service after a timeout."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.leave()

    def __del__(self) -> None:
        """Does nothing: the base class would ask Ray about actors that do not exist."""
