"""What the engine changes inside Ray or asks of it by private names, because its interface offers nothing.

Written for Ray 2.60, beyond which `pyproject.toml` does not go. `own_ray` has what is private about starting
Ray. `tests/autotune/engines/test_ray_internals.py` says which part another release has changed.
"""

from collections.abc import Mapping
from typing import Any

from ray._private import ray_constants
from ray._private.authentication import authentication_token_setup
from ray._private.worker import global_worker
from ray._raylet import (  # type: ignore[attr-defined]
    AuthenticationMode,
    AuthenticationTokenLoader,
    Config,
    GcsClient,
    get_authentication_mode,
)
from ray.actor import ActorHandle
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import AuthenticationError, RayError
from ray.tune import tune as ray_run
from ray.tune.execution import class_cache, tune_controller
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial

_LOOK_S = 0.5  # at what no event tells of, such as a search that is to stop


class TrialFailedError(Exception):
    """Says why a trial has failed, to Ray alone: the search has been told. The supervisor is well."""


def read_token() -> None:
    """Makes Ray read the token in the environment, which it did when it was imported."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def use_known_token() -> None:
    """Uses the token that the user has for a cluster, as `ray.init` does if no address is given."""
    read_token()
    authentication_token_setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def has_token() -> bool:
    """Says whether this process shows a token to the cluster that it is connected to."""
    return bool(get_authentication_mode() == AuthenticationMode.TOKEN)


def is_refused(address: str, timeout_s: float) -> bool:
    """Asks whether the cluster at `address` refuses this process's token; `ray.init` tries for minutes."""
    try:
        GcsClient(address=address).internal_kv_exists(b"any", None, timeout=timeout_s)
    except AuthenticationError:
        return True
    except RayError:
        pass  # Ray reports any other fault when it connects
    return False


def stay_on_loopback() -> None:
    """Makes Ray take 127.0.0.1 for what it is, and not for an address of this machine that others reach."""
    ray_constants.ENABLE_RAY_CLUSTER = False


def silence() -> None:
    """Keeps Ray from printing paragraphs about workers that have died: the search says what follows of it.

    A thread of the driver prints them, whatever is asked for. It ends as it does when Ray is shut down.
    """
    global_worker.threads_stopped.set()
    global_worker.gcs_error_subscriber.close()  # type: ignore[attr-defined]


def change_tune() -> None:
    """Changes Ray Tune for this process; a second call changes nothing."""
    _forward_nothing()
    ray_run.TuneController = _Controller  # type: ignore[attr-defined]
    tune_controller.RayActorManager = _Patient  # type: ignore[attr-defined]


def _forward_nothing() -> None:
    """Keeps Tune from handing variables to its actors by way of Ray, which logs them, keys too.

    On this machine the actors have them all the same: from Ray's processes, which were started with them.
    If none is handed over, Ray makes no environment for an actor, which takes another start of Python.
    """
    class_cache.DEFAULT_ENV_VARS.clear()
    class_cache.ENV_VARS_TO_PROPAGATE.clear()


def supervisor_of(trial: Trial) -> ActorHandle[Any] | None:
    """Returns the actor that runs a trial of Tune, if it has one now."""
    return trial.temporary_state.ray_actor


def last_report(trial: Trial) -> Mapping[str, Any]:
    """Returns what a trial has reported last; Tune's own property asks the actor if that is nothing."""
    return trial.run_metadata.last_result


def forget_reports(trial: Trial) -> None:
    """Forgets what Tune would keep of every trial to its end; nothing reads it."""
    trial.run_metadata.last_result = {}
    trial.run_metadata.metric_analysis.clear()
    trial.run_metadata.metric_n_steps.clear()


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
