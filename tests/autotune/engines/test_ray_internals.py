"""Ray internals that the engine relies on. A failing test names the change in a Ray release.

`test_failed_in_ray` checks that Tune uses our controller and our actor manager in a whole search,
`test_engine_cluster` that Ray starts silently and without unnecessary processes, and
`tests/faults/test_walls.py` that a cluster's refusal is noticed.
"""

import pytest
from ray._private import ray_constants, services
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.tune.execution import class_cache
from ray.tune.experiment import Trial

from autotune.engines import ray_internals

SECRET = "AWS_SECRET_ACCESS_KEY"


class Actor:
    pass


def handed_over():
    """Returns the environment variables that Tune sets for its actors."""
    return class_cache._ActorClassCache().get(Actor)._default_options["runtime_env"].get("env_vars", {})


def test_tune_hands_no_variable_to_its_actors(monkeypatch):
    for name in ("DEFAULT_ENV_VARS", "ENV_VARS_TO_PROPAGATE"):
        monkeypatch.setattr(class_cache, name, getattr(class_cache, name).copy())
    for module, name in (
        (ray_internals.ray_run, "TuneController"),
        (ray_internals.tune_controller, "RayActorManager"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setenv(SECRET, "made up")
    assert {SECRET, "PL_DISABLE_FORK"} <= set(handed_over())
    ray_internals.change_tune()
    assert handed_over() == {}


@pytest.mark.parametrize(("asked_s", "waits_s"), [(0.1, 0.5), (1.0, 1.0), (None, None)])
def test_between_two_events_tune_looks_twice_a_second(asked_s, waits_s):
    class Waiting(RayActorManager):
        def next(self, timeout):
            return timeout

    class Patient(ray_internals._Patient, Waiting):
        pass

    assert object.__new__(Patient).next(asked_s) == waits_s


def test_what_a_trial_has_reported_is_read_once_and_forgotten():
    trial = Trial("none", stub=True)
    trial.set_ray_actor(None)
    trial.update_last_result({"outcome": "completed", "samples": 8, "training_iteration": 1})
    assert ray_internals.supervisor_of(trial) is None
    assert ray_internals.last_report(trial)["outcome"] == "completed"
    kept = trial.run_metadata
    assert kept.metric_analysis.keys() == kept.metric_n_steps.keys() == {"samples", "training_iteration"}
    ray_internals.forget_reports(trial)
    assert [ray_internals.last_report(trial), kept.metric_analysis, kept.metric_n_steps] == [{}, {}, {}]


def test_ray_reads_the_token_again(monkeypatch):
    with monkeypatch.context() as changed:
        changed.setenv("RAY_AUTH_MODE", "token")
        changed.setenv("RAY_AUTH_TOKEN", "0" * 64)
        ray_internals.read_token()
        assert ray_internals.has_token()
        changed.setenv("RAY_AUTH_MODE", "disabled")
        ray_internals.read_token()
        assert not ray_internals.has_token()
    ray_internals.read_token()


def test_ray_stays_on_loopback(monkeypatch):
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    ray_internals.stay_on_loopback()
    assert services.resolve_ip_for_localhost("127.0.0.1") == "127.0.0.1"
