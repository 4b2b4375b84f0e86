"""A process and all its descendants."""

import subprocess
import sys

import psutil
import pytest

from autotune.trials import family
from tests.waiting import status, wait_for

NESTED = "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"


@pytest.fixture
def parent():
    """Yields the ids of a process and its child."""
    with subprocess.Popen([sys.executable, "-c", NESTED], stdout=subprocess.PIPE, text=True) as process:
        yield process.pid, int(process.stdout.readline())
        for one in family.members(process.pid):
            one.kill()


def is_suspended(pid):
    return status(pid) == psutil.STATUS_STOPPED


def test_a_family_is_suspended_and_resumed(parent):
    assert [one.pid for one in family.members(parent[0])] == list(parent)
    family.suspend(parent[0])
    wait_for(lambda: all(map(is_suspended, parent)))
    family.resume(parent[0])
    wait_for(lambda: not any(map(is_suspended, parent)))


def test_a_process_whose_command_line_cannot_be_read_is_suspended_too(parent, monkeypatch):
    def cmdline(process):
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "cmdline", cmdline)
    family.suspend(parent[0])
    wait_for(lambda: all(map(is_suspended, parent)))


def test_a_process_that_is_gone_has_no_family():
    with subprocess.Popen(["true"]) as process:
        pass
    assert family.members(process.pid) == []
    family.suspend(process.pid)
    family.resume(process.pid)
    assert not family.waits_for_disk(process.pid)
