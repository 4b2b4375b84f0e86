"""A training as TensorBoard and W&B show it: one run, with the charts of a trial."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from autotune.core.secrecy import wandb_is_online
from autotune.storage.trial_dir import TrainingDir
from autotune.trackers.event_files import EventFiles
from autotune.trials.reported import Report

if TYPE_CHECKING:
    from autotune.trackers.runs import Worker

_WHOSE = "training"


@dataclass(frozen=True)
class Shown:
    """What a run is known by: its `group`, such as the session whose winner is trained, and its `tags`."""

    group: str
    settings: Mapping[str, Any]
    quality: str
    unit: str
    tags: tuple[str, ...] = ()


class Following:
    """Logs a training's reports into its directory, to W&B unless that `mode` is off.

    Resuming a training resumes its run. What was logged is with W&B, or on the disk, when the `with` is left;
    until then nothing waits for it, and a failure to log is reported once.
    """

    def __init__(self, place: TrainingDir, shown: Shown, mode: str) -> None:
        self._name = place.root.name
        self._files = EventFiles(place.tensorboard_dir, shown.quality, shown.unit, _WHOSE)
        self._files.begin(self._name, shown.settings)
        self._worker = None if mode == "off" else _worker(place, shown, mode)

    def hear(self, report: Report) -> None:
        """An attempt's outcome is not the training's, which may continue."""
        self._log(replace(report, outcome=None))

    def ended(self, last: Report) -> None:
        """With the last report, whose records were taken."""
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

    known_by = shown.group, shown.quality, shown.unit, tuple(shown.tags)
    kept = Kept(place.root, place.wandb_key_file, *known_by, whose=_WHOSE)
    worker = Worker(Runs(kept, wandb_is_online(mode, os.environ)))
    worker.put("start", 0, dict(shown.settings))
    return worker
