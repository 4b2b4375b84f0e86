"""A Ray of our own, started for real: it says nothing by itself."""

import subprocess
import sys

# The thread in which Ray prints a paragraph about every worker that dies: with it, there would be one here.
DRIVER = """
import threading, time
from autotune.engines import engine_cluster
from autotune.system import scratch
from autotune.system.telemetry import hardware

def listens():
    return any(thread.name == "ray_listen_error_messages" for thread in threading.enumerate())

with scratch.private() as place, engine_cluster.own(hardware(), place.guardian, print):
    deadline = time.monotonic() + 30
    while listens() and time.monotonic() < deadline:
        time.sleep(0.05)
    print("listens" if listens() else "is silent")
"""


def test_nobody_listens_for_what_ray_has_to_say_of_dead_workers():
    done = subprocess.run(
        [sys.executable, "-c", DRIVER], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr, done.returncode) == ("is silent\n", "", 0)
