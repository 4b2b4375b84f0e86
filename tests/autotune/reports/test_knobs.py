"""What the knobs do to memory, as predicted."""

from autotune.judging.decisions.history import History
from autotune.memory.feasibility import MemoryModel
from autotune.reports import knobs

from .searched import GIB, trial

SIZES = (4, 8, 16, 32, 64)


def test_memory_is_predicted_for_every_micro_batch_and_precision_to_choose_from(space):
    trials = [
        trial(space, n, 10, 0.2, micro_batch_size=size, peak=size * GIB // 8) for n, size in enumerate(SIZES)
    ]
    best = trials[2].config | {"num_workers": 8}
    found = knobs.predicted(best, History(trials, space), 8 * GIB)
    assert [p.precision for p in found] == ["fp32", "tf32", "bf16", "fp16", "fp8"]
    assert all(p.micro_batch_size == SIZES for p in found)
    told = MemoryModel(trials, limit_bytes=8 * GIB).predict(best | {"micro_batch_size": 32})
    assert (found[0].low_bytes[3], found[0].peak_bytes[3], found[0].high_bytes[3]) == (
        told.low_bytes,
        told.expected_bytes,
        told.high_bytes,
    )
    assert found[2].peak_bytes[4] < found[0].peak_bytes[4], "half the width takes less"


def test_without_a_peak_nothing_is_predicted(space):
    assert (
        knobs.predicted(space.baseline_config, History([trial(space, 0, 10, 0.2, peak=None)], space), None)
        == ()
    )


def test_a_precision_that_is_no_knob_tells_no_peaks_apart(space):
    fixed = space.model_copy(update={"knobs": {n: k for n, k in space.knobs.items() if n != "precision"}})
    config = trial(fixed, 0, 10, 0.2).config
    (found,) = knobs.predicted(config, History([trial(fixed, 0, 10, 0.2)], fixed), None)
    assert (found.precision, found.micro_batch_size) == ("", SIZES)
