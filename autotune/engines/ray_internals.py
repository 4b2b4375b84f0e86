"""What the engine changes inside Ray Tune, where its interface offers nothing. Written for Ray 2.60.

`tests/autotune/engines/test_failed_in_ray.py` fails if another release has changed what this relies on.
"""

from typing import Any

from ray.tune import tune as ray_run
from ray.tune.execution import class_cache
from ray.tune.execution.tune_controller import TuneController

from autotune.engines.supervisor import TrialFailedError


def prepare() -> None:
    """Changes Ray Tune for this process; a second call changes nothing."""
    _forward_nothing()
    ray_run.TuneController = _Controller  # type: ignore[attr-defined]


def _forward_nothing() -> None:
    """Keeps Tune from handing variables to its actors by way of Ray, which logs them, keys too.

    On this machine the actors have them all the same: from Ray's processes, which were started with them.
    Where none is handed over, Ray makes no environment for an actor, which takes another start of Python.
    """
    class_cache.DEFAULT_ENV_VARS.clear()
    class_cache.ENV_VARS_TO_PROPAGATE.clear()


class _Controller(TuneController):
    """Keeps the supervisor of a failed trial for the next one. Tune would end it and start another one."""

    def _schedule_trial_stop(self, trial: Any, exception: Exception | None = None) -> None:
        if isinstance(exception, TrialFailedError):
            self._maybe_cache_trial_actor(trial)  # the trial has no actor then that could be ended
        super()._schedule_trial_stop(trial, exception)
