"""The next trial waits until the GPU memory of the last one is released, its loader workers' included."""

import itertools
import os
import signal

import pytest

from autotune.system import gpu_holders
from autotune.trials import family, gpu_watch
from autotune.trials.gpu_watch import GpuWatch

MIB = 2**20


@pytest.fixture
def gpu(monkeypatch):
    """Scripts the holders of GPU memory and the memory in use, one value per query."""
    looks = {"held": [{}], "used": [0]}

    def show(name):
        found = looks[name]
        return found.pop(0) if len(found) > 1 else found[0]

    monkeypatch.setattr(gpu_holders, "held_bytes", lambda: show("held"))
    monkeypatch.setattr(gpu_holders, "used_bytes", lambda: show("used"))
    monkeypatch.setattr(gpu_watch, "_LOOK_S", 0.0)
    return looks


def test_it_waits_for_the_last_process_of_the_trial(gpu):
    mine = os.getpid()
    watch = GpuWatch(0.5)
    watch.note(mine)
    gpu["held"] = [{mine: 5, 1: 7}, {mine: 0, 1: 7}, {1: 7}, {mine: 9}]
    watch.wait()
    assert gpu["held"] == [{mine: 9}], "it looked no more once a stranger alone was left"


def test_memory_that_others_took_meanwhile_is_not_waited_for(gpu):
    mine = os.getpid()
    gpu["held"], gpu["used"] = [{mine: 5}, {}], [100 * MIB, 900 * MIB]
    watch = GpuWatch(1.0)
    watch.note(mine)
    watch.wait()
    assert gpu["used"] == [900 * MIB], "its own memory is back"


def test_with_foreign_process_ids_memory_in_use_decides_unless_the_gpu_is_shared(gpu):
    gpu["used"] = [100 * MIB, 900 * MIB, 500 * MIB, 120 * MIB, 900 * MIB]
    watch = GpuWatch(1.0)
    watch.wait()
    assert gpu["used"] == [900 * MIB]
    gpu["used"] = [100 * MIB, 900 * MIB]
    GpuWatch(0.5).wait()
    assert gpu["used"] == [900 * MIB], "a neighbour may have taken that"


def test_it_does_not_wait_for_ever(gpu, monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(gpu_watch.time, "monotonic", lambda: float(next(clock)))
    watch = GpuWatch(1.0)
    gpu["used"] = [900 * MIB]
    watch.wait()
    assert next(clock) < 30


def test_without_a_gpu_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(gpu_holders, "used_bytes", None)
    watch = GpuWatch(0.0)
    watch.note(os.getpid())
    watch.wait()


def test_the_rest_of_a_group_is_known_after_its_leader_has_ended():
    leader = os.fork()
    if not leader:
        os.setsid()
        if not os.fork():
            signal.pause()
        os._exit(0)
    os.waitpid(leader, 0)
    (left,) = family.group_of(leader)
    os.kill(left, signal.SIGKILL)
    family._await_end(leader)
    assert family.group_of(leader) == []
