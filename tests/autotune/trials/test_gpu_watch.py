"""The next trial waits until the GPU memory of the last one is released, its loader workers' included."""

import os
import signal

import pytest

from autotune.trials import family, memory_watch
from autotune.trials.memory_watch import GpuWatch
from tests.waiting import wait_for

MIB = 2**20


class Scripted:
    """Reports the holders of GPU memory and the memory in use, a value per query; repeats the last one."""

    def __init__(self):
        self.held, self.used = [{}], [0]

    def held_bytes(self):
        return self.held.pop(0) if len(self.held) > 1 else self.held[0]

    def used_bytes(self):
        return self.used.pop(0) if len(self.used) > 1 else self.used[0]


@pytest.fixture
def gpu(monkeypatch):
    scripted = Scripted()
    monkeypatch.setattr(memory_watch, "devices", scripted)
    return scripted


def test_it_waits_for_the_last_process_of_the_trial(gpu):
    mine = os.getpid()
    watch = GpuWatch(0.5)
    watch.note(mine)
    gpu.held = [{mine: 5, 1: 7}, {mine: 0, 1: 7}, {1: 7}, {mine: 9}]
    watch.wait()
    assert gpu.held == [{mine: 9}], "it looked no more once a stranger alone was left"


def test_memory_that_others_took_meanwhile_is_not_waited_for(gpu):
    mine = os.getpid()
    gpu.held, gpu.used = [{mine: 5}, {}], [100 * MIB, 900 * MIB]
    watch = GpuWatch(1.0)
    watch.note(mine)
    watch.wait()
    assert gpu.used == [900 * MIB], "its own memory is back"


def test_with_foreign_process_ids_memory_in_use_decides_unless_the_gpu_is_shared(gpu):
    gpu.used = [100 * MIB, 900 * MIB, 500 * MIB, 120 * MIB, 900 * MIB]
    watch = GpuWatch(1.0)
    watch.wait()
    assert gpu.used == [900 * MIB]
    gpu.used = [100 * MIB, 900 * MIB]
    GpuWatch(0.5).wait()
    assert gpu.used == [900 * MIB], "a neighbour may have taken that"


def test_it_does_not_wait_for_ever(gpu):
    watch = GpuWatch(1.0, longest_s=0.1)
    gpu.used = [900 * MIB]
    watch.wait()
    assert gpu.used == [900 * MIB]


def test_without_a_gpu_nothing_is_asked(gpu):
    gpu.held = gpu.used = []  # an answer would be an IndexError
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
    wait_for(lambda: not family.group_of(leader))
    assert family.group_of(leader) == []
