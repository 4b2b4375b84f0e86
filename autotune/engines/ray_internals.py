"""What the engine changes inside Ray Tune, where its interface offers nothing. Written for Ray 2.60.

`tests/autotune/engines/test_failed_in_ray.py` fails if another release has changed what this relies on.
"""

from typing import Any

from ray.air.execution._internal.actor_manager import RayActorManager
from ray.tune import tune as ray_run
from ray.tune.execution import class_cache, tune_controller
from ray.tune.execution.tune_controller import TuneController

from autotune.engines.supervisor import TrialFailedError

_LOOK_S = 0.5  # at what no event tells of, such as a search that is to stop


def prepare() -> None:
    """Changes Ray Tune for this process; a second call changes nothing."""
    _forward_nothing()
    ray_run.TuneController = _Controller  # type: ignore[attr-defined]
    tune_controller.RayActorManager = _Patient  # type: ignore[attr-defined]


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


class _Patient(RayActorManager):
    """Tune's, woken by what happens: ten looks a second in between would take time from the trials."""

    def next(self, timeout: float | None = None) -> bool:
        return super().next(None if timeout is None else max(timeout, _LOOK_S))
