"""A search leaves no process, no memory and no files of Ray's, however it ends."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.endings import ENDED

from . import killing

pytestmark = pytest.mark.slow

ENDS = {
    "Ctrl-C": (os.killpg, signal.SIGINT, 130),
    "SIGTERM to the driver": (os.kill, signal.SIGTERM, 130),
    "SIGTERM to the group": (os.killpg, signal.SIGTERM, 130),
    "SIGKILL of the driver": (os.kill, signal.SIGKILL, -signal.SIGKILL),
    "SIGKILL of the group": (os.killpg, signal.SIGKILL, -signal.SIGKILL),
}
# Other tests send SIGKILL and SIGINT to the driver only.
SOAKED = {"Ctrl-C", "SIGTERM to the driver", "SIGKILL of the driver"}


@pytest.fixture
def search(tmp_path):
    """Starts a search with W&B; its remaining processes are killed with the test."""
    (tmp_path / "space.yaml").write_text(killing.SPACE)
    started = []

    def begin(*arguments, **environment):
        started.append(killing.begin(tmp_path, *killing.SEARCH[:-1], "offline", *arguments, **environment))
        return started[-1]

    yield begin
    for process in started:
        killing.end(process)


def scratch_of(processes) -> Path:
    """Returns Ray's directory, from the guardian's command line."""
    (guardian,) = killing.kinds(processes)["guardian"]
    return Path(guardian.cmdline()[3])


def has_left_its_group(process) -> bool:
    """Returns True for the program that leads its own session."""
    with suppress(psutil.Error, ProcessLookupError):
        return process.name() == "sleep" and os.getsid(process.pid) == process.pid
    return False


def shared_memory(processes) -> set[str]:
    """Returns the named files in /dev/shm that `processes` have open or mapped."""
    held = set()
    for process in processes:
        try:
            maps = Path(f"/proc/{process.pid}/maps").read_text()
        except OSError:
            continue
        held |= {line.split()[5] for line in maps.splitlines() if "/dev/shm/" in line}
    return held


def await_a_trial(tmp_path):
    records = tmp_path / "s" / "trials" / "0000" / "records.jsonl"
    killing.wait_for(lambda: records.exists() and records.read_text().count("bleu_4") > 1)


def await_the_end(family, scratch):
    """Waits for the end of a search's processes and of Ray's directory, seconds on an idle machine."""
    killing.wait_for(lambda: not killing.alive(family), 60, f"the end of {family}")
    killing.wait_for(lambda: not scratch.exists(), 60, f"the end of {scratch}")


@pytest.mark.parametrize(
    "end", [pytest.param(end, marks=pytest.mark.soak if end in SOAKED else ()) for end in ENDS]
)
def test_a_search_leaves_nothing_however_it_ends(tmp_path, search, end):
    send, number, code = ENDS[end]
    process = search("--samples", 40000)
    await_a_trial(tmp_path)
    family = killing.family(process)
    assert {"guardian", "raylet", "GCS server", "child", "loader worker"} <= set(killing.kinds(family))
    assert any(map(has_left_its_group, family))
    scratch, held = scratch_of(family), shared_memory(family)
    assert held, "Ray's object store"

    send(process.pid, number)
    process.wait(240)
    assert process.returncode == code, killing.output(tmp_path)
    await_the_end(family, scratch)
    assert not [file for file in held if Path(file).exists()]
    if code == 130:
        assert "Stopped: interrupted" in killing.output(tmp_path)
        assert "Continue with: python -m autotune resume s" in killing.output(tmp_path)
        assert (tmp_path / "s" / "trials" / "0000" / "work" / "state.json").exists()


def test_a_driver_killed_while_ray_starts_leaves_nothing(tmp_path, search):
    process = search()
    killing.wait_for(lambda: "GCS server" in killing.kinds(killing.family(process)))
    family = killing.family(process)
    scratch = scratch_of(family)
    process.kill()
    process.wait()
    await_the_end(family, scratch)


@pytest.mark.long
def test_the_next_command_ends_the_leftovers_of_a_driver_killed_with_its_guardian(tmp_path, search):
    """Uses its own temporary directory: in the common one, another test's command may come first."""
    with killing.temporary() as temporary:
        environment = {"TMPDIR": str(temporary)}
        process = search(**environment)
        await_a_trial(tmp_path)
        family = killing.family(process)
        (guardian,) = killing.kinds(family)["guardian"]
        scratch = scratch_of(family)
        drivers = psutil.Process(process.pid).children()
        guardian.suspend()  # otherwise it may be faster
        process.kill()
        process.wait()
        # Each would adopt what a killed guardian leaves, and end it. A dead one may stay a zombie.
        killing.wait_for(lambda: not killing.alive(drivers), 60, "the end of the drivers")
        guardian.kill()
        assert {"raylet", "GCS server"} <= set(killing.kinds(killing.alive(family)))
        asked = killing.begin(tmp_path, "status", "s", **environment)
        assert asked.wait(240) == 0, killing.output(tmp_path)
        assert not killing.alive(family)
        assert not scratch.exists()


def test_two_concurrent_searches_do_not_interfere_and_leave_nothing(tmp_path, search):
    """Kills the driver of one; the other one, started concurrently, completes."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "space.yaml").write_text(killing.SPACE)
    process = search("--samples", 40000)
    await_a_trial(tmp_path)
    length = ("--trials", 1, "--samples", 800)
    other = killing.begin(tmp_path / "other", *killing.SEARCH[:-1], "offline", *length)
    try:
        await_a_trial(tmp_path / "other")
        killed, ended = killing.family(process), killing.family(other)
        scratches = scratch_of(killed), scratch_of(ended)
        process.kill()
        await_the_end(killed, scratches[0])
        assert other.wait(240) in ENDED, killing.output(tmp_path / "other")
        await_the_end(ended, scratches[1])
        assert [t.completed for t in killing.trials_of(tmp_path / "other")] == [True]
    finally:
        killing.end(other)
