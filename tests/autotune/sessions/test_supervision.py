"""The supervision of a search in a child process; `faults/test_ray_dies` tests it with Ray."""

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autotune.core.errors import DamagedError, SearchAborted
from autotune.sessions.supervision import Job, RayDied, supervise
from autotune.system.node_kinds import Cluster, NodeKind


@pytest.fixture
def job(tmp_path):
    """A job of a session in which as many trials have ended as the file `ended` has characters."""

    def study():
        runs = (tmp_path / "ended").read_text() if (tmp_path / "ended").exists() else ""
        return SimpleNamespace(trials=[SimpleNamespace(outcome="completed") for _ in runs])

    session = cast("Any", SimpleNamespace(cluster=None, study=study))
    unused = cast("Any", None)
    return Job(session, tmp_path / "s", unused, unused, unused, unused, notes=["first"], more=2)


def note(place: Path, what: str) -> int:
    """Appends to a file; returns how often that was done."""
    with place.open("a") as file:
        file.write(what)
    return len(place.read_text())


def test_ray_may_die_as_long_as_trials_end_in_between(job, tmp_path):
    def drive(job):
        if note(tmp_path / "runs", "r") == 5:
            return 0
        assert (job.more, job.notes[0]) == (2, "first") or job.more == 0
        note(tmp_path / "ended", "e")
        return job.give_up(RayDied("Ray died"))

    assert supervise(job, drive) == 0
    assert len((tmp_path / "runs").read_text()) == 5


def test_a_ray_that_dies_three_times_without_a_trial_in_between_ends_the_search(job, tmp_path):
    def drive(job):
        note(tmp_path / "runs", "r")
        return job.give_up(RayDied("Ray died"))

    with pytest.raises(SearchAborted, match="Ray died, 3 times in a row; nothing is lost; continue with: "):
        supervise(job, drive)
    assert len((tmp_path / "runs").read_text()) == 3


def test_a_cluster_that_is_lost_is_not_ours_to_start_again(job, tmp_path):
    def drive(job):
        note(tmp_path / "runs", "r")
        return job.give_up(RayDied("the Ray cluster at head:6379 does not answer any more"))

    job.session.cluster = Cluster(NodeKind(), (), "head:6379")
    with pytest.raises(SearchAborted, match="does not answer any more; nothing is lost; continue with: "):
        supervise(job, drive)
    assert (tmp_path / "runs").read_text() == "r"


@pytest.mark.parametrize("error", [DamagedError("its study is torn"), KeyboardInterrupt("interrupted")])
def test_the_error_of_a_search_is_raised_in_the_process_that_began_it(job, error):
    def drive(job):
        raise error

    with pytest.raises(type(error), match=str(error)):
        supervise(job, drive)


def test_a_killed_search_is_reported_with_the_exit_code_of_a_shell(job, capfd):
    assert supervise(job, lambda _: os.kill(os.getpid(), signal.SIGKILL)) == 128 + signal.SIGKILL
    assert "the search was ended by SIGKILL; nothing is lost; continue with: " in capfd.readouterr().err


def test_a_signal_that_reaches_both_processes_is_heard_once(job):
    def drive(job):
        heard = []
        for number in job.interrupts:
            signal.signal(number, lambda number, _: heard.append(number))
        for process in (os.getpid(), os.getppid()):
            os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + 30
        while not heard and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)
        return len(heard)

    assert supervise(job, drive) == 1
