"""Passes Ray Tune's callbacks on to the trackers."""

from collections.abc import Sequence
from typing import Any

from ray.tune.logger import LoggerCallback

from autotune.trackers.tracking import Trackers
from autotune.trials.report import REPORT


class RayCallback(LoggerCallback):
    """Starts, logs and ends a run for every trial, named by its number."""

    def __init__(self, trackers: Trackers) -> None:
        super().__init__()
        self._trackers = trackers

    def __reduce__(self) -> tuple[type[LoggerCallback], tuple[()]]:
        return LoggerCallback, ()  # Tune pickles callbacks for a restore that is never used

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: W&B's own callback would ask for an API key."""

    def log_trial_start(self, trial: Any) -> None:
        self._trackers.begin(_name(trial), {**trial.config["config"], "trial": trial.config["number"]})

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:  # noqa: ARG002
        self._trackers.log(_name(trial), REPORT.validate_python(result))

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        self._trackers.end(_name(trial), failed=failed)

    def log_trial_save(self, trial: Any) -> None:
        """Does nothing: checkpoints stay in the session."""

    def on_experiment_end(self, trials: Sequence[Any], **info: Any) -> None:
        """Does nothing: Tune may be started again, and the summary of the session is written later."""


def callback(trackers: Trackers) -> RayCallback:
    """Returns the callback for all trackers; if W&B is on, it derives from Ray's own callback for W&B."""
    if "wandb" not in trackers.names:
        return RayCallback(trackers)
    from ray.air.integrations.wandb import WandbLoggerCallback  # noqa: PLC0415 - imports W&B, which may be off

    class SearchCallback(RayCallback, WandbLoggerCallback):
        def __del__(self) -> None:
            """Does nothing: the base class would ask Ray about actors that do not exist."""

    return SearchCallback(trackers)


def _name(trial: Any) -> str:
    return f"{trial.config['number']:04d}"
