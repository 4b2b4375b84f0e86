"""Changes to Ray, and queries of it, by private names, because its public interface offers none.

Written for Ray 2.60; `tests/autotune/engines/test_ray_internals.py` tells what another release has changed.
"""

from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray import NodeID
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


class TrialFailedError(Exception):
    """Reports a failed trial to Ray only: the search knows already, and the supervisor is fine."""


def read_token() -> None:
    """Makes Ray read the token in the environment again, as it did on import."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def use_known_token() -> None:
    """Uses the user's token for a cluster, as `ray.init` does without an address."""
    read_token()
    authentication_token_setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def has_token() -> bool:
    """Returns True if this process authenticates to its cluster with a token."""
    return bool(get_authentication_mode() == AuthenticationMode.TOKEN)


def is_refused(address: str, timeout_s: float) -> bool:
    """Returns True if the cluster at `address` refuses the token; `ray.init` would try for minutes."""
    try:
        GcsClient(address=address).internal_kv_exists(b"any", None, timeout=timeout_s)
    except AuthenticationError:
        return True
    except RayError:
        pass  # reported when Ray connects
    return False


def heartbeat() -> Callable[[], bool]:
    """Returns a function that tells whether the cluster answers in time and counts this process's node."""
    context = ray.get_runtime_context()
    client, node = GcsClient(address=context.gcs_address), NodeID.from_hex(context.get_node_id())

    def is_alive() -> bool:
        try:
            return bool(client.check_alive([node], timeout=3.0)[0])
        except RayError:
            return False

    return is_alive


def stay_on_loopback() -> None:
    """Keeps Ray from replacing 127.0.0.1 with an address that other machines can reach."""
    ray_constants.ENABLE_RAY_CLUSTER = False


def silence() -> None:
    """Ends the driver's thread that prints messages about dead workers, since the search reports them."""
    global_worker.threads_stopped.set()
    global_worker.gcs_error_subscriber.close()  # type: ignore[attr-defined]


def change_tune() -> None:
    """Patches Ray Tune in this process; further calls change nothing."""
    # Ray would log the variables with all keys; on this machine actors inherit them anyway. Without any, Ray
    # creates no runtime environment, which would cost another start of Python.
    class_cache.DEFAULT_ENV_VARS.clear()
    class_cache.ENV_VARS_TO_PROPAGATE.clear()
    ray_run.TuneController = _Controller  # type: ignore[attr-defined]
    tune_controller.RayActorManager = _Patient  # type: ignore[attr-defined]


def supervisor_of(trial: Trial) -> ActorHandle[Any] | None:
    """Returns the actor that currently runs a trial of Tune, None if there is none."""
    return trial.temporary_state.ray_actor


def last_report(trial: Trial) -> Mapping[str, Any]:
    """Returns a trial's last report; Tune's own property asks the actor if there is none."""
    return trial.run_metadata.last_result


def forget_reports(trial: Trial) -> None:
    """Discards the reports that Tune would keep of every trial; nothing reads them."""
    trial.run_metadata.last_result = {}
    trial.run_metadata.metric_analysis.clear()
    trial.run_metadata.metric_n_steps.clear()


class _Controller(TuneController):
    """Keeps the supervisor of a failed trial for the next one; Tune would replace it."""

    def _schedule_trial_stop(self, trial: Any, exception: Exception | None = None) -> None:
        if isinstance(exception, TrialFailedError):
            self._maybe_cache_trial_actor(trial)  # the trial then has no actor left to end
        super()._schedule_trial_stop(trial, exception)


class _Patient(RayActorManager):
    """Waits for events; Tune's manager would poll ten times a second, which takes time from the trials."""

    def next(self, timeout: float | None = None) -> bool:
        # Limited for what comes without an event, such as the end of the search.
        return super().next(None if timeout is None else max(timeout, 0.5))
