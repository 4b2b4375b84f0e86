"""Attempts at a trial of a program, for every kind of workload."""

import time

import pytest

from autotune.core.measurement import Metric
from autotune.trials.attempt import Attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order, TrialLimits

from .kinds import HERE, KINDS

SETTINGS = {"micro_batch_size": 4, "seed": 7}


_SLOW = [pytest.mark.slow]
# What a framework's own checkpoint and stop decide. A process that imports one takes many seconds
# to start, so what remains is left to `make soak`: it rests on the command that each of them is.
_OF_FRAMEWORKS = "test_a_stop_ends_it_at_any_moment_and_leaves_its_checkpoint"


def pytest_collection_modifyitems(items):
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        is_kept = item.originalname == _OF_FRAMEWORKS and given.get("moment", "in a step") == "in a step"
        if getattr(given.get("kind"), "is_slow", False) and not is_kept:
            item.add_marker(pytest.mark.soak)


@pytest.fixture(params=[pytest.param(kind, marks=_SLOW if kind.is_slow else []) for kind in KINDS], ids=str)
def kind(request):
    return request.param


@pytest.fixture(scope="package")
def server():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))  # a child has its supervisor's
        yield ForkServer(["contract_programs"])


@pytest.fixture
def begin(kind, server, tmp_path):
    """Begins a trial of a program, or resumes it; what is left of it ends with the test."""
    begun = []

    def attempt(program, settings=None, *, samples=80, keep_work=False, whole=False, **limits):
        settings = {**SETTINGS, **(settings or {})}
        workload = kind.workload(program, settings)
        given = (0, workload, settings, str(tmp_path), Metric("score"))
        order = Order(*given, Ends(samples), TrialLimits(**limits), keep_work=keep_work, whole=whole)
        begun.append(Attempt(order, server))
        return begun[-1]

    yield attempt
    for one in begun:
        one.stop()


@pytest.fixture
def run(begin):
    """Runs a program to its end: the report that has its outcome."""
    return lambda *program, **rest: finish(begin(*program, **rest))


def finish(running):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        report = running.step(0.2)
        if report.outcome is not None:
            return report
    raise AssertionError("it did not end")
