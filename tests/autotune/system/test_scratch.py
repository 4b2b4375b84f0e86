"""A private directory, its guardian, and the cleanup after both were killed."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import psutil
import pytest

from autotune.system import scratch
from autotune.system.guardian import StartError
from tests.waiting import alive, wait_for

# A driver: it prints its resources, and ends on request. Its child leaves the process group, ignores SIGTERM,
# and has named shared memory.
DRIVER = """
import json, os, sys, tempfile, time
from pathlib import Path
from autotune.system import scratch
daemon = '''
import os, signal, sys, tempfile, time
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = SharedMemory(create=True, size=100)
kept = tempfile.mkstemp()
open(sys.argv[1] + ".tmp", "w").write(held.name)
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
time.sleep(600)
'''
with scratch.private() as guardian:
    told = guardian.directory / "told"
    start = ["/bin/sh", "-c", '"$0" -c "$1" "$2" & ', sys.executable, daemon, str(told)]
    with guardian.running(start, os.environ, lambda: None):
        while not told.exists():
            time.sleep(0.01)
        shared = "/dev/shm/" + told.read_text()
        print(json.dumps([str(guardian.directory), tempfile.mkdtemp(), shared]), flush=True)
        sys.stdin.readline()
"""


# A process may have one private directory after the other, and starts processes in each. The directory that
# multiprocessing makes is in it: elsewhere it would outlive a SIGKILL.
TWICE = """
import multiprocessing, os, sys
from pathlib import Path
from autotune.system import scratch
for _ in range(2):
    with scratch.private() as guardian:
        listed = ("import os; os.listdir(os.environ['TMPDIR'])",)
        process = multiprocessing.get_context("forkserver").Process(target=exec, args=listed)
        process.start()
        process.join()
        if process.exitcode or list(guardian.directory.parent.iterdir()) != [guardian.directory]:
            sys.exit(1)
"""


@pytest.fixture(autouse=True)
def _own_temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Uses a short temporary directory: in pytest's own, a socket's path would be too long."""
    with tempfile.TemporaryDirectory(prefix="t-") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        tempfile.tempdir = None  # which remembers TMPDIR
        yield
        tempfile.tempdir = None
        assert list(Path(directory).iterdir()) == [], "nothing is left"


class Driver:
    """A running driver, and what it has printed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        said = json.loads(cast("IO[str]", self.process.stdout).readline())
        self.directory, self.temporary, self.shared = map(Path, said)
        self.family = psutil.Process(self.process.pid).children(recursive=True)

    @property
    def guardian(self) -> psutil.Process:
        return next(p for p in self.family if "guardian.py" in " ".join(p.cmdline()))

    def alive(self) -> list[psutil.Process]:
        return alive(self.family)

    def is_gone(self) -> bool:
        return not (self.alive() or self.directory.exists() or self.shared.exists())

    def close(self) -> None:
        for process in self.alive():
            process.kill()
        self.process.communicate()


@pytest.fixture
def driver() -> Iterator[Driver]:
    found = Driver()
    yield found
    found.close()


def test_it_is_the_temporary_directory_of_all_and_nobody_else_may_look_into_it(driver: Driver) -> None:
    assert stat.S_IMODE(driver.directory.stat().st_mode) == 0o700
    assert driver.temporary.parent == driver.directory
    assert len([f for f in driver.directory.iterdir() if f.is_file() and f.name.startswith("tmp")]) == 1
    driver.process.communicate("end\n")
    assert driver.process.returncode == 0
    assert driver.is_gone()


@pytest.mark.parametrize("victim", ["the driver", "the guardian"])
def test_it_goes_with_its_driver_and_with_its_guardian(driver: Driver, victim: str) -> None:
    assert driver.shared.exists()
    if victim == "the driver":
        driver.process.kill()
    else:
        driver.guardian.kill()
    wait_for(driver.is_gone)


def test_the_next_driver_ends_the_leftovers_of_driver_and_guardian_killed_together(driver: Driver) -> None:
    guardian = driver.guardian
    guardian.suspend()  # otherwise it might clean up first
    driver.process.kill()
    driver.process.wait()
    guardian.kill()
    wait_for(lambda: guardian not in driver.alive())
    assert driver.alive()
    assert driver.shared.exists()
    scratch.end_orphans()
    assert driver.is_gone()


def test_directories_in_use_or_of_other_users_are_left_alone(driver: Driver, tmp_path: Path) -> None:
    anothers, linked = (Path(tempfile.gettempdir(), f"autotune_{name}") for name in ("anothers", "linked"))
    anothers.mkdir()
    linked.symlink_to(tmp_path)
    (tmp_path / "kept").touch()
    if os.getuid() == 0:
        os.chown(anothers, 65534, 65534)
    scratch.end_orphans()
    assert driver.alive()
    assert driver.directory.exists()
    assert anothers.exists() == (os.getuid() == 0)
    assert (tmp_path / "kept").exists()
    linked.unlink()
    if anothers.exists():
        anothers.rmdir()
    driver.process.communicate("end\n")


def test_the_previous_temporary_directory_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = tempfile.gettempdir()
    with scratch.private() as guardian:
        assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(guardian.directory)
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == before
    monkeypatch.delenv("TMPDIR")
    with scratch.private():
        pass
    assert "TMPDIR" not in os.environ


def test_a_name_too_long_for_sockets_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 40)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    tempfile.tempdir = None
    with scratch.private() as guardian:
        assert guardian.directory.parent == Path("/tmp")
        assert stat.S_IMODE(guardian.directory.stat().st_mode) == 0o700
    assert not guardian.directory.exists()


def test_a_failed_start_has_its_reason_and_the_next_one_runs() -> None:
    with scratch.private() as guardian:
        fails = ["/bin/sh", "-c", "echo first; echo 'it is broken'; exit 3"]
        with (
            pytest.raises(StartError, match="it is broken"),
            guardian.running(fails, os.environ, lambda: None),
        ):
            raise AssertionError("it must not get here")
        ran = guardian.directory / "ran"
        with guardian.running(["/bin/sh", "-c", f"touch {ran}"], os.environ, lambda: None):
            assert ran.exists()


DAEMON_DIES = """
import os, subprocess, sys, threading
from autotune.system import scratch

own, seen, told = subprocess.Popen(["sleep", "600"]), [], threading.Event()

def lost():
    seen.append(own.poll())
    told.set()

start = [sys.executable, "-c", "import subprocess; subprocess.Popen(['sleep', '0.5'])"]
with scratch.private() as guardian, guardian.running(start, os.environ, lost):
    assert told.wait(120)
    own.wait(120)
print(seen, own.returncode is None)
"""


def test_a_daemons_death_is_reported_before_the_rest_is_ended(tmp_path):
    told = subprocess.run(
        [sys.executable, "-c", DAEMON_DIES],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert told.stdout == "[None] False\n", told.stderr


_HOLDS = """
import os, sys
from pathlib import Path
from autotune.system import scratch
with scratch.directory(".check-", Path(sys.argv[1])) as own:
    (own / "trial").mkdir()
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_the_next_process_removes_a_killed_ones_leftovers_but_not_those_in_use(tmp_path):
    (tmp_path / ".check-a file").touch()
    command = [sys.executable, "-c", _HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "ready\n"
        with scratch.directory(".check-", tmp_path) as own:
            assert len(list(tmp_path.glob(".check-*/trial"))) == 1, "it is in use"
        assert not own.exists()
        other.kill()
    assert list(tmp_path.glob(".check-*/trial"))
    with scratch.directory(".check-", tmp_path):
        assert not list(tmp_path.glob(".check-*/trial"))
    assert [file.name for file in tmp_path.iterdir()] == [".check-a file"]


def test_processes_are_forked_in_the_present_directory() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
