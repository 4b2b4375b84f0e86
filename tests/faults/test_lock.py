"""A session is used by one process at a time, and a dead one does not block it."""

import json
import multiprocessing
import os
import socket
import subprocess
import threading
import time

import pytest

from autotune.core.errors import InputError
from autotune.space import spaces
from autotune.storage.records import read_records
from autotune.storage.store import Options, StoredSession, is_in_use
from tests.endings import ENDED

from . import killing
from .searches import Place
from .sessions import KEPT, SPACE, as_if_here, call, is_one_line, kept, search, start, trials_of, wait_for


@pytest.fixture
def running(tmp_path):
    """Starts a search in the session `s`, and suspends its first trial so that the search does not end."""
    process = start(tmp_path, *search(tmp_path, "--trials", 2, step_s=0.2, samples_per_trial=200))
    records = tmp_path / "s" / "trials" / "0000" / "records.jsonl"
    wait_for(lambda: records.exists() and records.read_text().count("\n") > 5)
    [child] = killing.kinds(killing.family(process))["child"]
    child.suspend()
    yield process
    process.kill()
    process.wait()


@pytest.mark.long
def test_a_second_process_is_refused_with_the_holders_pid_and_host(tmp_path, running):
    """Processes of a killed search may outlive it for a moment; the lock does not."""
    holder = f"is in use by pid {running.pid} on {socket.gethostname()}"
    is_one_line(call(tmp_path, "resume", "s"), holder)
    is_one_line(call(tmp_path, *search(tmp_path)), holder)
    seen = call(tmp_path, "status", "s")
    assert seen.returncode == 0, seen.stderr
    assert "1 running" in seen.stdout
    exported = call(tmp_path, "export", "s", "-o", "best.yaml")
    assert exported.returncode == 0 or "the baseline has not completed" in exported.stderr
    assert running.poll() is None, "it was not disturbed"

    running.kill()
    running.wait()
    wait_for(lambda: not is_in_use(StoredSession(tmp_path / "s")), 10)
    done = call(tmp_path, "resume", "s")
    assert done.returncode in ENDED, done.stderr
    baseline, second = trials_of(tmp_path / "s")
    assert baseline.completed
    assert second.outcome is not None
    trained = [
        r["samples"] for r in read_records(StoredSession(tmp_path / "s").trial_dir(0)) if "train_loss" in r
    ]
    assert trained[-1] >= 200


@pytest.fixture
def session(tmp_path):
    return StoredSession.create(tmp_path / "s", spaces.parse(SPACE, "test"), Options(), {})


def test_a_lock_file_left_by_a_reboot_does_not_matter(session):
    session.lock_file.write_text("pid 1 on a machine that is no more\n")
    assert not is_in_use(session)
    with session.lock():
        assert str(os.getpid()) in session.lock_file.read_text()


def test_asking_for_the_lock_blocks_nobody(session):
    asking = threading.Event()

    def ask():
        while not asking.is_set():
            is_in_use(session)
            time.sleep(0.001)  # often, not always

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for _ in range(50):
            with session.lock():
                pass
    finally:
        asking.set()
        thread.join()


# Nothing below a directory can be locked, as on Lustre without `-o flock`, or NFS without its lock daemon.
UNLOCKABLE = """
import errno, fcntl, os
flock = fcntl.flock
def failing(file, how):
    number = file if isinstance(file, int) else file.fileno()
    if os.readlink(f"/proc/self/fd/{number}").startswith(os.environ["UNLOCKABLE"]):
        code = getattr(errno, os.environ["CODE"])
        raise OSError(code, os.strerror(code))
    flock(file, how)
fcntl.flock = failing
"""


@pytest.fixture
def run_unlocked(tmp_path):
    """Runs a command while nothing below a directory can be locked."""
    with Place(tmp_path) as place:

        def run(*arguments, below=tmp_path, code="ENOSYS"):
            given = {"UNLOCKABLE": str(below), "CODE": code, "PYTHONPATH": str(KEPT), "TMPDIR": "/tmp"}
            process = place.start(*arguments, patch=UNLOCKABLE, **given)
            out, err = process.communicate(timeout=240)
            return subprocess.CompletedProcess(process.args, process.wait(), out, err)

        yield run


@pytest.mark.parametrize("code", ["ENOSYS", pytest.param("ENOLCK", marks=pytest.mark.slow)])
def test_no_search_begins_or_resumes_if_its_session_cannot_be_locked(tmp_path, run_unlocked, code):
    as_if_here(kept("format-2", tmp_path / "done"))
    for arguments in (search(tmp_path), ("resume", "done"), ("recover", "done")):
        is_one_line(run_unlocked(*arguments, code=code), "must be on a file system that locks files")
    assert not (tmp_path / "s" / "session.json").exists()
    assert run_unlocked("status", "done").returncode == 0


def test_a_line_names_tmpdir_if_no_temporary_directory_can_be_locked(tmp_path, run_unlocked):
    done = run_unlocked(*search(tmp_path), below="/tmp/autotune_")
    is_one_line(done, "TMPDIR: must be on a file system that locks directories; flock fails in /tmp")


@pytest.mark.slow
def test_a_check_needs_no_locks_in_its_directory(tmp_path, run_unlocked):
    search(tmp_path)
    done = run_unlocked("check", "space.yaml")
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob(".check-*"))


def create(place, number, results):
    try:
        StoredSession.create(place, spaces.parse(SPACE, "test"), Options(seed=number), {})
        results.put(number)
    except InputError as error:
        results.put(str(error))


def test_one_of_several_simultaneous_searches_in_a_directory_begins(tmp_path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    started = [context.Process(target=create, args=(tmp_path / "s", n, results)) for n in range(4)]
    for process in started:
        process.start()
    said = [results.get(timeout=30) for _ in started]
    for process in started:
        process.join()
    (won,) = [s for s in said if isinstance(s, int)]
    assert all("already exists" in s or "is in use by" in s for s in said if isinstance(s, str))
    assert json.loads((tmp_path / "s" / "session.json").read_text())["options"]["seed"] == won
