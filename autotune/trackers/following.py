"""Logs a whole training to TensorBoard and W&B: one run, with the charts of a trial."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from autotune.core.metric import Metric
from autotune.core.secrecy import wandb_is_online
from autotune.storage.trial_dir import TrainingDir
from autotune.trackers.event_files import EventFiles
from autotune.trials.reported import Report

if TYPE_CHECKING:
    from autotune.trackers.runs import Worker

_WHOSE = "training"


@dataclass(frozen=True)
class Shown:
    """Identity of a run: its `group`, such as the session whose winner is trained, settings and `tags`."""

    group: str
    settings: Mapping[str, Any]
    metric: Metric
    tags: tuple[str, ...] = ()


class Following:
    """Logs a training's reports into its directory, and to W&B unless `mode` is off.

    Resuming a training resumes its run. Logging does not block; leaving the `with` waits until everything is
    uploaded or on disk. A failure to log is reported once.
    """

    def __init__(self, place: TrainingDir, shown: Shown, mode: str) -> None:
        self._name = place.root.name
        self._files = EventFiles(place.tensorboard_dir, shown.metric, _WHOSE)
        self._files.begin(self._name, shown.settings)
        self._worker = None if mode == "off" else _worker(place, shown, mode)

    def hear(self, report: Report) -> None:
        """Logs a report without its outcome: the training may continue after the attempt."""
        self._log(replace(report, outcome=None))

    def ended(self, last: Report) -> None:
        """Logs the last report with its outcome; its records were logged before."""
        self._log(replace(last, records=()))

    def _log(self, report: Report) -> None:
        self._files.log(self._name, report)
        if self._worker is not None:
            self._worker.put("log", report)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            if self._worker is not None:
                stack.callback(self._worker.leave)
            self._files.close_all()


def _worker(place: TrainingDir, shown: Shown, mode: str) -> "Worker":
    from autotune.trackers.runs import Kept, Runs, Worker  # noqa: PLC0415 - W&B takes a while

    identity = shown.group, shown.metric, tuple(shown.tags)
    kept = Kept(place.root, place.wandb_key_file, *identity, whose=_WHOSE)
    worker = Worker(Runs(kept, wandb_is_online(mode, os.environ)))
    worker.put("start", 0, dict(shown.settings))
    return worker
