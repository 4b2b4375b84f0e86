"""A private Ray cluster, really started: it prints nothing and starts no unnecessary processes."""

import os
from unittest import mock

from ray._private.accelerators.nvidia_gpu import NvidiaGPUAcceleratorManager

from autotune.engines import engine_cluster
from tests import forked

# Ray's thread that prints a paragraph about every dead worker would print one here.
DRIVER = """
import threading, time
import psutil
from autotune.engines import engine_cluster
from autotune.system import scratch
from autotune.system.telemetry import hardware

def listens():
    return any(thread.name == "ray_listen_error_messages" for thread in threading.enumerate())

with scratch.private() as guardian, engine_cluster.private_cluster(hardware(), guardian, print):
    deadline = time.monotonic() + 30
    while listens() and time.monotonic() < deadline:
        time.sleep(0.05)
    print("listens" if listens() else "is silent")
    family = [" ".join(p.cmdline()).partition(" --")[0] for p in psutil.Process().children(recursive=True)]
    known = ("guardian.py", "gcs_server", "raylet/raylet", "own_ray.py")
    print(len(family), *(sum(name in program for program in family) for name in known))
"""


def test_it_prints_nothing_about_dead_workers_and_has_no_unnecessary_process(tmp_path):
    done = forked.run((), tmp_path, os.environ, script=DRIVER)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.splitlines() == ["is silent", "5 1 1 1 2"]


@mock.patch.dict(os.environ, {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}, clear=True)
def test_every_trial_sees_its_own_gpu_whatever_the_configuration_of_ray():
    engine_cluster._silence()
    NvidiaGPUAcceleratorManager.set_current_process_visible_accelerator_ids(["1"])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
