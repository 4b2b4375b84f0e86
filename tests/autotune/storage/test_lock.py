"""The lock of a session cannot be taken away, and forked processes hold it too."""

import shutil
import subprocess
import sys

import pytest

from autotune.core.errors import InputError, SessionBusyError
from autotune.storage import lock


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "s"
    root.mkdir()
    return root


def hold(root):
    return lock.hold(root, root / "lock", "session s")


HOLDS = """
import sys
from pathlib import Path
from autotune.storage import lock
root = Path(sys.argv[1])
with lock.hold(root, root / "lock", "session s"):
    print("held", flush=True)
    sys.stdin.readline()
"""
# A process that it forks has the lock too; a program that it starts by exec does not.
FORKS = """
import os, subprocess, sys
from pathlib import Path
from autotune.storage import lock
root = Path(sys.argv[1])
with lock.hold(root, root / "lock", "session s"):
    if os.fork():
        os._exit(0)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    print("held", flush=True)
    sys.stdin.readline()
print("let go", flush=True)
sys.stdin.readline()
child.kill()
child.wait()
"""


@pytest.fixture
def start(root):
    """Runs a script alongside this process; `say` lets it continue, and waits for its next line."""
    started = []

    def begin(script):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen([sys.executable, "-c", script, str(root)], **pipes)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def go_on(process):
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def is_refused(root):
    with pytest.raises(SessionBusyError, match="session s: is in use by "), hold(root):
        pass
    return lock.is_held(root, root / "lock")


def test_deleting_the_lock_file_lets_nobody_in(root, start):
    assert start(HOLDS).stdout.readline() == "held\n"
    (root / "lock").unlink()
    assert is_refused(root)


def test_replacing_the_lock_file_lets_nobody_in(root, start):
    assert start(HOLDS).stdout.readline() == "held\n"
    (root / "lock.new").write_text("pid 1 on another machine\n")
    (root / "lock.new").replace(root / "lock")
    assert is_refused(root)


def test_holding_only_the_file_as_earlier_releases_did_holds_the_session(root):
    with lock.hold_file(root / "lock", "session s"):
        assert is_refused(root)


def test_a_process_that_was_forked_keeps_the_lock_that_it_was_forked_with(root, start):
    process = start(FORKS)
    assert process.stdout.readline() == "held\n"
    assert process.wait(60) == 0
    assert is_refused(root)
    assert go_on(process) == "let go"
    assert not lock.is_held(root, root / "lock"), "what it has started has not got the lock from it"


def test_a_session_that_was_deleted_or_replaced_is_not_in_place(root):
    with hold(root) as held:
        assert held.is_in_place
        moved = root.rename(root.with_name("moved"))
        assert not held.is_in_place
        shutil.copytree(moved, root)
        assert not held.is_in_place


def test_a_link_in_place_of_the_lock_is_not_followed(root, tmp_path):
    (tmp_path / "other").write_text("the user's")
    (root / "lock").symlink_to(tmp_path / "other")
    with pytest.raises(InputError, match="lock must be a regular file, or absent"), hold(root):
        pass
    assert (tmp_path / "other").read_text() == "the user's"
