"""The memory limit of a trial's whole process family, and the blame for kills by the kernel."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest

from autotune.core.measurement import Metric
from autotune.core.trial import Failure, Outcome, Status
from autotune.system import cgroup
from autotune.system.cgroup import MemoryGroup
from autotune.trials.child import Child
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order, TrialLimits
from tests.waiting import is_over, wait_for

from .children import listen

LIMIT = 300 * 2**20


@pytest.fixture
def start(tmp_path):
    """Starts a workload of `workloads_for_tests`; its remaining processes are killed with the test."""
    started, server = [], ForkServer([])

    def begin(workload, config=None, **limits):
        order = Order(
            0,
            f"workloads_for_tests:{workload}",
            config or {},
            str(tmp_path),
            Metric("bleu_4"),
            Ends(9),
            TrialLimits(**limits),
        )
        started.append(Child(order, server))
        return started[-1]

    yield begin
    for child in started:
        child.kill()


@pytest.fixture
def in_group(monkeypatch):
    """Puts the next trial into this control group, or into none, instead of one made for it."""
    return lambda group: monkeypatch.setattr(MemoryGroup, "create", lambda: group)


@pytest.fixture(params=["by the kernel", "by looking"])
def kept(request, in_group):
    """Enforces the limit by sampling or by a control group."""
    if request.param == "by looking":
        in_group(None)
    elif cgroup.group_for_trials() is None:
        pytest.skip("no control group can be made here")
    return request.param


def ran_out(outcome):
    return (outcome.status, outcome.failure) == (Status.FAILED, Failure.OOM)


@pytest.mark.parametrize("dies_first", [False, True])
def test_a_process_with_a_session_of_its_own_is_killed(start, in_group, dies_first):
    """Also if the child was killed before it, as for want of memory: it could no longer be found below it."""
    in_group(None)  # as for most users
    child = start("starts_sessions")
    worker = psutil.Process(child.poll(60.0)[0]["program"])
    if dies_first:
        os.kill(child.pid, signal.SIGKILL)
        listen(child)
    else:
        worker.suspend()
    child.kill()
    wait_for(lambda: is_over(worker.pid))


def test_a_family_that_holds_more_than_its_limit_together_is_out_of_memory(start, kept):
    # Ten exceed the limit in any case: the memory inherited by the fork may already be as large.
    child = start("has_heavy_children", {"children": 10}, host_bytes=LIMIT)
    events = listen(child)
    assert ran_out(child.verdict), child.verdict
    assert len(events) >= 3
    if kept == "by looking":
        assert "its processes held " in child.verdict.reason
        assert "its limit is 300 MiB" in child.verdict.reason
    else:
        # The kernel may kill any of them, or sampling may notice the excess first.
        said = ("killed one of its processes for memory", "killed by the kernel", "its limit is 300 MiB")
        assert any(part in child.verdict.reason for part in said), child.verdict


@pytest.mark.slow
def test_a_family_within_its_limit_is_left_alone(start, kept):
    child = start("has_heavy_children", {"children": 2}, host_bytes=LIMIT)
    for _ in range(8):
        child.poll(0.5)
    assert child.verdict is None


def test_memory_that_is_shared_counts(start, kept):
    config = {"blocks": 80, "pause_s": 0.05}
    child = start("shares_memory", config, host_bytes=LIMIT)
    assert len(listen(child)) == 1
    assert ran_out(child.verdict), child.verdict


@pytest.fixture
def own_group():
    """The control group of the next trial."""
    if cgroup.group_for_trials() is None:
        pytest.skip("no control group can be made here")


def test_a_program_that_the_kernel_kills_for_memory_is_the_trials_own(start, own_group):
    child = start("runs_a_heavy_program", host_bytes=LIMIT)
    listen(child)
    assert ran_out(child.verdict), child.verdict
    assert "the kernel has killed one of its processes" in child.verdict.reason


def test_a_limit_that_importing_torch_exceeds_is_out_of_memory(start):
    forkserver._forkserver._stop()  # its server may have torch imported already
    child = start("imports_torch", host_bytes=40 * 2**20)
    assert len(listen(child)) == 1
    assert ran_out(child.verdict), child.verdict


class GroupThatNobodyJoins(MemoryGroup):
    def join(self) -> None:
        raise OSError


def test_a_process_that_cannot_join_the_capped_group_is_sampled(start, own_group, in_group):
    in_group(GroupThatNobodyJoins(MemoryGroup.create().directory))
    child = start("shares_memory", {"blocks": 80, "pause_s": 0.05}, host_bytes=LIMIT)
    listen(child)
    assert ran_out(child.verdict), child.verdict
    assert "its processes held " in child.verdict.reason


STRANGER = """
import sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
held = [b"x" * 2**22 for _ in range(1000)]
"""


def stranger_runs_out_of_memory(group: Path) -> None:
    """Makes the kernel kill a process outside of any trial, in a control group of its own."""
    group.mkdir()
    try:
        MemoryGroup(group).cap(64 * 2**20)
        done = subprocess.run([sys.executable, "-c", STRANGER, str(group)], check=False)
        assert done.returncode == -signal.SIGKILL
        assert cgroup.kills(group) == 1
    finally:
        MemoryGroup(group).end()


@pytest.mark.parametrize("kept", ["by the kernel", "by looking"], indirect=True)
def test_a_strangers_kill_for_memory_is_not_the_trials(start, kept, own_group):
    child = start("has_heavy_children", {"children": 0}, host_bytes=LIMIT)
    while not child.poll(1.0):
        assert child.verdict is None
    place = cgroup.group_for_trials()
    stranger_runs_out_of_memory(place / f"stranger-{os.getpid()}")
    os.kill(child.pid, signal.SIGKILL)
    listen(child)
    assert (child.verdict.status, child.verdict.failure) == (Status.INTERRUPTED, Failure.LOST)


def test_shared_memory_with_a_name_goes_with_the_trial(start):
    child = start("shares_by_name")
    while not (events := child.poll(1.0)):
        assert child.verdict is None
    file = Path(events[0]["file"])
    assert file.exists()
    child.kill()
    assert not file.exists()


def test_the_control_group_goes_with_the_trial(start, own_group):
    child = start("has_heavy_children", {"children": 1})
    while len(child.poll(1.0)) < 1:
        assert child.verdict is None
    group = child._memory.group
    assert child.pid in group.pids()
    begun = time.monotonic()
    child.kill()
    assert not group.directory.exists(), time.monotonic() - begun
    assert child.verdict == Outcome(Status.STOPPED, reason="killed")
