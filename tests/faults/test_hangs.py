"""Hanging processes are ended, suspended ones continue: real processes, mostly by the real command line."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autotune.core.measurement import Metric
from autotune.core.trial import Failure, Status
from autotune.trials.attempt import Attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order, TrialLimits
from tests.endings import ENDED

from .searches import HERE, SLOW, Place, driver, end, wait_for

pytestmark = pytest.mark.slow

SPACE = """
workload: trivial:hangs
baseline: {hang: none, learning_rate: 1e-3}
knobs: {hang: {choice: [none, stopped, in a worker]}}
objective: {select: pareto}
budget: {trials: 3, samples_per_trial: 16, repeats: 0}
"""
STOPPED_S = 7.0  # longer than the tests' limit for a hang


@pytest.fixture
def place(tmp_path):
    with Place(tmp_path) as here:
        yield here


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        yield ForkServer([])


def order(directory, hang, **limits):
    settings = {"hang": hang, "learning_rate": 1e-3}
    return Order(
        0, "trivial:hangs", settings, str(directory), Metric("bleu_4"), Ends(16), TrialLimits(**limits)
    )


def finish(running, seconds=240):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        report = running.step(0.5)
        if report.outcome is not None:
            return report.outcome
    raise AssertionError("it did not end")


def session_of(pid):
    """Returns the live processes of a trial's session."""
    found = [p for p in psutil.process_iter(["status"]) if p.info["status"] != psutil.STATUS_ZOMBIE]
    return [p for p in found if _session(p) == pid]


def _session(process):
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return None


@pytest.mark.parametrize(
    ("hang", "where"),
    {
        "at once": ["sleeps"],
        "in Python": ["sleeps"],
        "in C with the GIL": ["holds_the_gil"],
        "stopped": ["is_stopped"],
        "in a worker": ["waits_for_a_worker", "never_returns"],
    }.items(),
)
def test_a_hang_is_ended_with_all_its_processes_and_logged_with_its_stack(tmp_path, server, hang, where):
    running = Attempt(order(tmp_path, hang, stall_timeout_s=60.0), server)
    child, pid = running._child, running._child.pid
    wait_for((tmp_path / "work" / "hanging").exists)
    child._order = replace(child._order, limits=TrialLimits(stall_timeout_s=1.5))
    outcome = finish(running)
    assert (outcome.status, outcome.failure) == (Status.FAILED, Failure.TIMEOUT)
    log = (tmp_path / "log").read_text()
    for function in where:
        assert f"in {function}" in log
    wait_for(lambda: not session_of(pid))


def test_a_hanging_close_does_not_spoil_a_completed_trial(tmp_path, server):
    running = Attempt(order(tmp_path, "when closed", closing_s=1.0), server)
    pid = running._child.pid
    assert finish(running).status == Status.COMPLETED
    wait_for(lambda: not session_of(pid))


def test_a_search_continues_after_hanging_trials(place):
    process = place.search(SPACE, "--wandb", "off", "--stall-timeout", "6s")
    _, errors = end(process)
    assert errors == ""
    assert process.returncode in ENDED
    outcomes = {t.config["hang"]: t.outcome for t in place.trials()}
    assert outcomes.pop("none").status is Status.COMPLETED
    assert [outcome.failure for outcome in outcomes.values()] == [Failure.TIMEOUT] * 2
    wait_for(lambda: not place.left())


def test_a_search_interrupted_twice_does_not_wait_for_a_hanging_close(place):
    process = place.search(SLOW.replace("hang: none", "hang: when closed"), "--wandb", "off")
    wait_for(lambda: len(place.records(0)) > 5)
    process.send_signal(signal.SIGINT)
    wait_for((place.session / "stop").exists)
    process.send_signal(signal.SIGINT)
    _, errors = end(process)
    assert process.returncode == 130
    assert errors in {"", "autotune: interrupted\n"}, "the first one may have ended it in that very moment"
    wait_for(lambda: not place.left())


# A supervisor is also silent before its first report, for seconds on a busy machine: silence counts as a hang
# only while a file exists.
IMPATIENT = f"""
from pathlib import Path
from autotune.engines import engine

look = engine._SupervisorWatch.on_step_begin

def look_as_told(*given, **named):
    engine._SILENT_S = {STOPPED_S - 2} if Path("impatient").exists() else 600.0
    look(*given, **named)

engine._SupervisorWatch.on_step_begin = look_as_told
"""


def suspend(*processes):
    """Suspends them for longer than the limit for a hang."""
    send(signal.SIGSTOP, processes)
    time.sleep(STOPPED_S)
    send(signal.SIGCONT, processes)


def send(number, processes):
    for each in processes:
        with suppress(psutil.NoSuchProcess):  # it has ended
            each.send_signal(number)


@pytest.mark.long
def test_suspended_processes_continue_and_a_hanging_supervisor_costs_one_repetition(place):
    """Suspends the driver in the first trial, everything in the second, a supervisor in the third."""
    process = place.search(SLOW, "--wandb", "off", "--stall-timeout", f"{STOPPED_S - 2}s", patch=IMPATIENT)
    impatient = place.directory / "impatient"
    wait_for(lambda: len(place.records(0)) > 5)
    impatient.touch()
    suspend(process, driver(process))
    wait_for(lambda: len(place.records(1)) > 5)
    suspend(process, driver(process), *place.left())
    wait_for(lambda: len(place.records(2)) > 5)
    assert [place.attempts(number) for number in range(3)] == [1, 1, 1]
    suspensions = [sum("suspended_s" in record for record in place.records(number)) for number in range(3)]
    assert suspensions == [0, 1, 0]
    [supervisor] = place.left("ray::Supervisor")
    supervisor.send_signal(signal.SIGSTOP)
    wait_for(lambda: "its supervisor died" in process.said())
    impatient.unlink()
    _, errors = end(process)
    assert errors == ""
    assert process.returncode in ENDED
    assert all(t.completed for t in place.trials())
    assert [place.attempts(t.number) for t in place.trials()] == [1, 1, 2]
    wait_for(lambda: not place.left())


IMPORTS = """
import sys
from dataclasses import replace
from pathlib import Path
from autotune.core.measurement import Metric
from autotune.trials import fork_server
from autotune.trials.child import Child
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order, TrialLimits

fork_server._PRELOAD_S = 10.0  # more than a server needs that hangs in nothing
order = Order(0, "stuck:fit", {}, ".", Metric("bleu_4"), Ends(1), TrialLimits(stall_timeout_s=120.0))
child = Child(order, ForkServer(["stuck"]))
Path("here").unlink(missing_ok=True)  # of the server that hung in it, too
while not Path("here").exists():
    child.poll(0.1)
child._order = replace(order, limits=TrialLimits(stall_timeout_s=1.5))
while child.verdict is None:
    child.poll(1.0)
child.kill()
print(child.verdict)
"""


@pytest.mark.long
def test_a_hanging_import_is_a_hanging_trial(tmp_path):
    (tmp_path / "stuck.py").write_text(
        "from pathlib import Path\nimport time\nPath('here').touch()\ntime.sleep(3600)\n"
    )
    (tmp_path / "main.py").write_text(IMPORTS)
    done = subprocess.run(
        [sys.executable, "main.py"], check=True, cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert (done.stdout, done.stderr) == ("failed (timeout)\n", "")
    assert "stuck.py" in Path(tmp_path, "log").read_text()
