"""The children of supervisors that are killed, that end, or that are Ray actors."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.waiting import alive, wait_for

from .children import session

HERE = Path(__file__).parents[1]

# Like a user's script without a main guard: importing it runs it again.
SUPERVISOR = """
import sys, time
from autotune.core.measurement import Metric
from autotune.trials.child import Child
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order

print("begun")
workload, preload, then = sys.argv[1:]
child = Child(Order(0, workload, {}, ".", Metric("bleu_4"), Ends(1)), ForkServer(["torch", preload]))
while child.verdict is None and not child.poll(1.0):
    pass
print(child.pid, child.verdict.reason if child.verdict else "", flush=True)
if then == "pause":
    child.pause()
    print("paused", flush=True)
if then != "end":
    time.sleep(600)
"""

RACE = """
import sys, time
from autotune.core.measurement import Metric
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import NEVER, Ends, Order, RaceOrder, Racer
from autotune.trials.race import Race

def member(number):
    directory = f"member-{number}"
    order = Order(number, "workloads_for_tests:counts", {}, directory, Metric("bleu_4"), Ends(NEVER))
    return Racer(order, 1)

race = Race(RaceOrder(9, ".", tuple(map(member, range(3))), True, 600.0), ForkServer([]))
while not race.step(0.2).samples:
    pass
print(*(one._child.pid for one in race._members.values()), flush=True)
time.sleep(600)
"""

ACTOR = """
import os
import ray
from autotune.core.measurement import Metric
from autotune.trials.child import Child
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order

@ray.remote
class Supervisor:
    def start(self):
        self.child = Child(
            Order(0, "workloads_for_tests:has_family", {}, os.getcwd(), Metric("b"), Ends(1)),
            ForkServer(["torch", "workloads_for_tests"]),
        )
        events = self.child.poll(60.0)
        return self.child.pid, [event["samples"] for event in events]

ray.init(
    num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
    object_store_memory=80 * 2**20, _node_ip_address="127.0.0.1",
)
supervisor = Supervisor.remote()
pid, samples = ray.get(supervisor.start.remote())
print(pid, samples, flush=True)
input()
ray.kill(supervisor)
input()
"""


@contextmanager
def script(tmp_path, text, *arguments):
    """Runs `text` as the main script of another process, which dies with the test."""
    (tmp_path / "main.py").write_text(text)
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    ray = {"memory_monitor_refresh_ms": "0", "prestart_worker_first_driver": "0", "AUTH_MODE": "disabled"}
    process = subprocess.Popen(
        [sys.executable, "main.py", *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path} | {f"RAY_{name}": value for name, value in ray.items()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "victims", ["the supervisor", pytest.param("the supervisor and its server", marks=pytest.mark.slow)]
)
def test_nothing_survives_a_killed_supervisor(tmp_path, victims):
    with script(
        tmp_path, SUPERVISOR, "workloads_for_tests:has_family", "workloads_for_tests", "wait"
    ) as process:
        assert process.stdout.readline() == "begun\n"
        pid = int(process.stdout.readline().split()[0])
        server = psutil.Process(pid).parent()
        assert len(session(pid)) >= 4
        process.send_signal(signal.SIGSTOP)  # so that both are killed at once
        if victims == "the supervisor and its server":
            server.kill()
        process.kill()
        wait_for(lambda: not session(pid))
        wait_for(lambda: not alive([server]))


@pytest.mark.slow
def test_nothing_survives_a_killed_supervisor_whose_child_is_paused(tmp_path):
    with script(
        tmp_path, SUPERVISOR, "workloads_for_tests:has_family", "workloads_for_tests", "pause"
    ) as process:
        assert process.stdout.readline() == "begun\n"
        pid = int(process.stdout.readline().split()[0])
        assert process.stdout.readline() == "paused\n"
        assert len(session(pid)) >= 4
        process.kill()
        wait_for(lambda: not session(pid))


def test_nothing_survives_a_killed_supervisor_of_a_race(tmp_path):
    with script(tmp_path, RACE) as process:
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 3
        assert all(len(session(pid)) == 3 for pid in pids), "the process, its program, its guard"
        process.kill()
        wait_for(lambda: not any(session(pid) for pid in pids))


@pytest.mark.slow
def test_a_supervisor_that_ends_does_not_wait_for_its_child(tmp_path):
    with script(
        tmp_path, SUPERVISOR, "workloads_for_tests:has_family", "workloads_for_tests", "end"
    ) as process:
        output, _ = process.communicate(timeout=240)
    begun, report = output.splitlines()
    assert begun == "begun", "the main script is not run again in the child"
    wait_for(lambda: not session(int(report.split()[0])))


@pytest.mark.long
def test_a_module_that_cannot_be_imported_fails_the_trial_and_not_the_supervisor(tmp_path):
    (tmp_path / "broken.py").write_text("raise RuntimeError('this module is broken')")
    with script(tmp_path, SUPERVISOR, "broken:fit", "broken", "end") as process:
        output, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    assert output.rstrip().endswith("RuntimeError: this module is broken")
    assert "broken.py" in (tmp_path / "log").read_text()


@pytest.mark.long
@pytest.mark.timeout(900)  # on a loaded machine Ray and torch take minutes to start
def test_a_child_of_a_ray_actor_lives_and_dies_with_it(tmp_path):
    with script(tmp_path, ACTOR) as process:
        pid, samples = process.stdout.readline().split(maxsplit=1)
        assert samples == "[1]\n"
        assert len(session(int(pid))) >= 4
        process.stdin.write("\n")
        process.stdin.flush()
        wait_for(lambda: not session(int(pid)))
