"""What the knobs do: memory as predicted, importance, the ablation."""

import pytest

from autotune.judging import ablation
from autotune.judging.history import History
from autotune.memory.feasibility import MemoryModel
from autotune.report import knobs
from autotune.space import space as spaces

from .searched import GIB, confirmed, trial

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


def test_a_precision_that_is_no_knob_is_the_one_that_there_is(space):
    fixed = space.model_copy(update={"knobs": {n: k for n, k in space.knobs.items() if n != "precision"}})
    config = trial(fixed, 0, 10, 0.2).config
    (found,) = knobs.predicted(config, History([trial(fixed, 0, 10, 0.2)], fixed), None)
    assert (found.precision, found.micro_batch_size) == ("fp32", SIZES)


def test_the_way_is_that_of_the_search(space):
    trials = confirmed(space)
    taken = knobs.steps(History(trials, space))
    assert [(s.knob, s.before, s.after) for s in taken] == [
        (s.knob, s.before, s.after) for s in ablation.steps(History(trials, space))
    ]
    assert (taken[0].trial, taken[0].throughput, taken[0].reason) == (None, None, "not measured yet")
    half = ablation.steps(History(trials, space))[0].config
    measured = [*trials, trial(space, 9, 20, None, ablation_of=1, status="stopped", **dict(half))]
    first, last = knobs.steps(History(measured, space))
    assert (first.trial, first.throughput.value, first.reason) == (9, 20, "")
    assert first.factor * last.factor == pytest.approx(last.throughput.value / 10.2, rel=1e-2)
    assert knobs.steps(History(trials[:2], space)) == (), "nobody is confirmed yet"


def searched(space, speed_of, quality_of, count=12, **rest):
    """Trials over two knobs and a learning rate that is twice the rule's every other time."""
    trials = []
    for n in range(count):
        drawn = space.drawn(space.baseline_config) | {
            "micro_batch_size": SIZES[n % 4],
            "num_workers": (0, 2, 4)[n % 3],
            "learning_rate": 2.0 if n % 2 else 0.5,
        }
        config = space.config(drawn)
        trials.append(trial(space, n, speed_of(drawn), quality_of(drawn), **config, **rest))
    return trials


def by_batch(drawn):
    return float(drawn["micro_batch_size"])


def by_rate(drawn):
    return 0.1 * drawn["learning_rate"]


def test_what_decides_about_speed_and_about_quality_is_told_apart_by_the_knobs_own_names(space):
    found = knobs.importance(History(searched(space, by_batch, by_rate), space))
    assert list(found) == ["throughput", "bleu_4"]
    assert max(found["throughput"], key=found["throughput"].get) == "micro_batch_size"
    assert max(found["bleu_4"], key=found["bleu_4"].get) == "learning_rate"
    for shares in found.values():
        assert shares.keys() == space.knobs.keys()
        assert sum(shares.values()) == pytest.approx(1.0)
        assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_of_stopped_trials_the_speed_counts_and_the_quality_does_not(space):
    found = knobs.importance(History(searched(space, by_batch, by_rate, status="stopped"), space))
    assert list(found) == ["throughput"]


def test_of_too_few_trials_or_where_nothing_varies_nothing_is_said(space):
    assert knobs.importance(History([], space)) == {}
    assert knobs.importance(History(searched(space, by_batch, by_rate, count=3), space)) == {}
    assert knobs.importance(History(searched(space, lambda _: 10.0, lambda _: 0.2), space)) == {}
    assert knobs.importance(History(searched(space, by_batch, by_rate, failure="oom"), space)) == {}


def test_repeats_steps_of_the_way_and_what_is_outside_the_space_do_not_count(space):
    repeated = searched(space, by_batch, by_rate, ablation_of=1)
    assert knobs.importance(History(repeated, space)) == {}
    other = spaces.complete(space.model_copy(update={"knobs": dict(list(space.knobs.items())[:3])}), "test")
    assert knobs.importance(History(searched(space, by_batch, by_rate), other)) == {}
