"""TensorBoard logging of a search: one run per trial, below the session."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ray.tune.logger import LoggerCallback

from autotune.space.space import Space
from autotune.trackers.event_files import EventFiles
from autotune.trials.reported import Report


class Board(LoggerCallback):
    """Logs every trial to `directory`, in a run named by the trial number."""

    def __init__(self, directory: Path, space: Space) -> None:
        self._files = EventFiles(directory, space.metric)
        self._knobs = tuple(space.knobs)

    def log_trial_start(self, trial: Any) -> None:
        settings = trial.config["config"]
        self._files.begin(_name(trial), {name: settings[name] for name in self._knobs})

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:  # noqa: ARG002
        self._files.log(_name(trial), Report.from_dict(result))

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:  # noqa: ARG002
        self._files.close(_name(trial))

    def on_experiment_end(self, trials: Sequence[Any], **info: Any) -> None:  # noqa: ARG002
        self._files.close_all()  # of trials that have not ended


def _name(trial: Any) -> str:
    return f"{trial.config['number']:04d}"
