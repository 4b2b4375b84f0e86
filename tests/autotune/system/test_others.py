"""The CPU time used by other programs: real processes, and fake clocks."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from autotune.core.measurement import Measurement
from autotune.system import guardian, others
from autotune.system.others import CpuTime, Others

SPIN = "while True: pass"
STARTS_SPINNERS = r"""
import subprocess, sys
while True:
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: pass"])
"""
_BURNT_S, _SLACK_S = 2.0, 1.0
_TIMEOUT_S = 120.0
_NAP_S = 0.1


@contextmanager
def child(code: str) -> Iterator[psutil.Process]:
    with psutil.Popen([sys.executable, "-c", code]) as process:
        try:
            yield process
        finally:
            for member in (*process.children(recursive=True), process):
                member.kill()


def spent_s(process: psutil.Process) -> float:
    """Returns the CPU seconds of a process and its reaped children."""
    return sum(process.cpu_times()[:4])


def watched(top: psutil.Process, burner: psutil.Process) -> tuple[float, float, float]:
    """Returns CPU seconds while `burner` runs: of all outside of `top`, of the burner, of everything.

    Samples are taken meanwhile, as by telemetry.
    """
    watch, deadline = Others(top), time.monotonic() + _TIMEOUT_S
    at_s, begun_s, busy_s = time.monotonic(), spent_s(burner), busy()
    watch.sample()
    others_s = 0.0
    while spent_s(burner) - begun_s < _BURNT_S:
        assert time.monotonic() < deadline, "the burner does not get on"
        time.sleep(_NAP_S)
        found, before_s, at_s = watch.sample(), at_s, time.monotonic()
        others_s += found["others_cpu_percent"] / 100 * (at_s - before_s)
    return others_s, spent_s(burner) - begun_s, busy() - busy_s


def busy() -> float:
    return others.busy_seconds(Path("/proc/stat").read_text(), os.sched_getaffinity(0))[0]


@pytest.mark.slow
def test_cpu_time_outside_of_the_search_is_others() -> None:
    with child("import time; time.sleep(600)") as top, child(SPIN) as burner:
        others_s, burnt_s, _ = watched(top, burner)
    assert others_s > burnt_s - _SLACK_S


@pytest.mark.slow
@pytest.mark.parametrize("code", [SPIN, STARTS_SPINNERS], ids=["itself", "in processes that come and go"])
def test_cpu_time_below_the_search_is_not_others(code: str) -> None:
    with child(code) as top:
        others_s, burnt_s, busy_s = watched(top, top)
    assert others_s + burnt_s < busy_s + _SLACK_S, "what the search burnt was counted as somebody else's, too"


def test_the_cpu_time_of_an_ended_process_is_its_reapers() -> None:
    parent, worker = psutil.Process(os.getpid()), psutil.Process(os.getppid())
    before = {parent: CpuTime(1.0, 0.0), worker: CpuTime(5.0, 0.0)}
    assert others.search_spent_s(before, {parent: CpuTime(1.5, 7.0)}) == 2.5


def test_an_unreaped_process_takes_nothing_from_others() -> None:
    parent, worker = psutil.Process(os.getpid()), psutil.Process(os.getppid())
    before = {parent: CpuTime(1.0, 0.0), worker: CpuTime(500.0, 0.0)}
    assert others.search_spent_s(before, {parent: CpuTime(1.5, 0.0)}) == 0.5


def test_a_new_process_starts_at_zero() -> None:
    parent, worker = psutil.Process(os.getpid()), psutil.Process(os.getppid())
    assert (
        others.search_spent_s(
            {parent: CpuTime(1.0, 0.0)}, {parent: CpuTime(1.0, 0.0), worker: CpuTime(2.0, 1.0)}
        )
        == 3
    )


def test_only_cpus_that_may_be_used_count_and_guests_count_once() -> None:
    stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 20 3 1000 50 4 5 6 100 20\ncpu2 1 1 1 1 1 1 1 1 0 0\nintr 5"
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    assert others.busy_seconds(stat, {0}) == (138 / ticks_per_s, 1188 / ticks_per_s)
    assert others.busy_seconds(stat, {0, 1, 2})[0] == 144 / ticks_per_s, "one that is offline is not there"


def test_without_a_top_nothing_is_reported() -> None:
    watch = Others(None)
    assert (watch.sample(), watch.sample(), watch.below) == ({}, {}, [])


def test_without_ray_the_search_is_this_process() -> None:
    assert others.search_root() == psutil.Process()


SAYS_ITS_TOP = "from autotune.system import others; print(others.search_root().pid, flush=True)"
DRIVER = f"""
import os, pathlib, subprocess, sys, time
from autotune.system.guardian import Guardian
directory = pathlib.Path(sys.argv[1])
below = (
    "import subprocess, sys;"
    "subprocess.run([sys.executable, '-c', {SAYS_ITS_TOP!r}], stdout=open(sys.argv[1], 'w'))"
)
guardian = Guardian(directory)
with guardian.running([sys.executable, "-c", below, str(directory / "top")], os.environ, lambda: None):
    print((directory / "top").read_text(), flush=True)
guardian.close()
"""


def test_below_a_guardian_the_search_is_the_guardians_parent(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout
        assert int(driver.stdout.readline()) == driver.pid


class Above:
    """An ancestor of this process, as psutil shows it."""

    def __init__(self, name: str, *command: str) -> None:
        self._name, self._command = name, list(command)

    def cmdline(self) -> list[str]:
        return self._command

    def name(self) -> str:
        return self._name

    def parent(self) -> str:
        return f"above {self._name}"


def test_below_rays_daemon_only_a_guardian_marks_the_search() -> None:
    raylet, guard = Above("raylet"), Above("guard", "python", "-I", guardian.__file__, "/tmp/x")
    assert others.search_root(Mock(parents=lambda: [raylet])) is None
    assert others.search_root(Mock(parents=lambda: [raylet, guard])) == "above guard"


def test_more_than_a_twentieth_of_the_cpus_or_of_the_gpu_is_reported() -> None:
    def shares(**telemetry: float) -> dict[str, float]:
        return Measurement(telemetry=telemetry).others

    assert shares(others_cpu_percent=76.0, allowed_cpus=2.0) == {"CPUs": pytest.approx(0.38)}
    assert shares(others_cpu_percent=76.0, allowed_cpus=64.0, others_gpu_percent=9.0) == {"GPU": 0.09}
    assert not Measurement(telemetry={"others_cpu_percent": 9.9, "allowed_cpus": 2.0}).disturbed
    assert not Measurement().disturbed
