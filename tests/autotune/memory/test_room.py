from autotune.core.measurement import Measurement
from autotune.core.trial import Trial
from autotune.memory import room

GIB = 2**30


def make_trial(number, size):
    return Trial(number, {}, measurement=Measurement(context_bytes=size))


def test_the_context_is_the_largest_measured_or_a_default():
    assert room.context_bytes([]) == room.context_bytes([make_trial(0, None)]) == 600 * 2**20
    assert room.context_bytes([make_trial(0, 300), make_trial(1, None), make_trial(2, 900)]) == 900


def test_the_context_uses_the_memory_outside_of_the_fraction_if_it_fits():
    assert room.limit_bytes(8 * GIB, GIB, 0.85) == 8 * GIB
    assert int(0.95 * room.limit_bytes(8 * GIB, GIB, 0.95)) == 7 * GIB - 1


def test_at_least_half_the_share_is_left_for_tensors():
    assert room.beside_context(GIB, GIB) == GIB / 2
