"""Errors on a GPU that are due to memory, and whether the trial caused the shortage."""

from dataclasses import replace

from autotune.trials.gpu_memory import GpuMemory

GIB = 2**30
PLENTY = GpuMemory(
    total_bytes=8 * GIB,
    free_bytes=5 * GIB,
    reserved_bytes=2 * GIB,
    allowed_bytes=6 * GIB,
    elsewhere_before_bytes=GIB,
    refusals=0,
)


def test_each_sign_of_a_memory_shortage_suffices():
    assert not PLENTY.is_short
    assert replace(PLENTY, refusals=1).is_short
    assert replace(PLENTY, free_bytes=GIB // 4).is_short
    assert replace(PLENTY, allowed_bytes=2 * GIB).is_short


def test_growth_outside_the_process_is_caused_by_others():
    taken = replace(PLENTY, free_bytes=GIB // 4)
    assert taken.is_taken_by_others(GIB)
    assert not replace(taken, elsewhere_before_bytes=11 * GIB // 2).is_taken_by_others(GIB), "it was there"


def test_beyond_its_cap_a_trial_fails_by_itself_whatever_others_do():
    assert not replace(PLENTY, free_bytes=GIB // 4).is_taken_by_others(5 * GIB)


def test_a_small_shortage_is_the_trials_own_fault():
    assert not replace(PLENTY, free_bytes=5 * GIB - 300 * 2**20).is_taken_by_others(GIB)
