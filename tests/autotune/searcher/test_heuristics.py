import pytest

from autotune.judging.decisions.history import History
from autotune.searcher import heuristics
from autotune.space import configurations
from autotune.space.knobs import KeptBatch


def batches(best, trials, space):
    return [c["micro_batch_size"] for c in heuristics.larger_batches(best, History(trials, space))]


def baseline(make_trial, **changes):
    config = {"accumulation_steps": 1, "num_workers": 2, "learning_rate": 1e-4} | changes
    return make_trial(0, 10.0, 0.2, **config)


def test_the_largest_batch_comes_first(space, make_trial):
    best = baseline(make_trial)
    assert batches(best, [best], space) == [64, 32]


def test_larger_micro_batches_come_before_larger_effective_batches(space, make_trial):
    best = baseline(make_trial, micro_batch_size=8, accumulation_steps=4)
    found = list(heuristics.larger_batches(best, History([best], space)))
    assert [(c["micro_batch_size"], c["accumulation_steps"]) for c in found[:2]] == [(32, 1), (16, 2)]
    assert {c["learning_rate"] for c in found[:2]} == {best.config["learning_rate"]}
    assert {c["accumulation_steps"] for c in found[2:]} == {4}


def test_the_learning_rate_follows_the_batch(space, make_trial):
    best = baseline(make_trial)
    first = next(heuristics.larger_batches(best, History([best], space)))
    assert first["learning_rate"] == 2e-4


def test_below_a_failed_size_the_middle_comes_first(space, make_trial):
    best = baseline(make_trial, micro_batch_size=4)
    config = {**best.config, "micro_batch_size": 64, "learning_rate": 4e-4}
    failed = make_trial(1, 90.0, 0.01, **config)
    assert batches(best, [best, failed], space)[0] == 16
    assert 64 not in batches(best, [best, failed], space)


def test_batches_of_one_effective_batch_are_one_row(space, make_trial):
    kept = {**space.knobs, "accumulation_steps": KeptBatch(keep="effective_batch_size")}
    space = space.model_copy(update={"knobs": kept})
    best, failed = (
        make_trial(number, speed, 0.2, **configurations.configure(space, {**drawn, "micro_batch_size": size}))
        for drawn in [configurations.drawn_values(space, space.baseline_config)]
        for number, speed, size in ((0, 10.0, 4), (1, 5.0, 16))
    )
    assert batches(best, [best, failed], space) == [8]


def test_an_ablation_step_does_not_count_as_tried(space, make_trial):
    best = baseline(make_trial)
    rest = {n: v for n, v in best.config.items() if n not in {"micro_batch_size", "precision"}}
    step = make_trial(1, 90.0, 0.2, micro_batch_size=64, ablation_of=7, **rest)
    assert batches(best, [best, step], space) == [64, 32]


def test_the_largest_batch_has_no_larger_one(space, make_trial):
    best = baseline(make_trial, micro_batch_size=64)
    assert batches(best, [best], space) == []


def test_a_step_changes_one_knob(space, make_trial):
    best = baseline(make_trial)
    steps = configurations.neighbours(space, best.config)
    for step in steps:
        changed = {name for name, value in step.items() if value != best.config[name]}
        assert len(changed - {"learning_rate"}) == 1
    assert {s["micro_batch_size"] for s in steps} == {8, 16, 32}


def test_heuristics_begin_with_the_best_before_and_every_other_turn_has_steps(space, make_trial):
    best = make_trial(0, 10.0, 0.2, **space.baseline_config)
    known = [configurations.changed(space, best.config, {"micro_batch_size": n}) for n in (5, 16, 8, 32)]
    history = History([best], space)
    suggest = heuristics.Heuristics(known, seed=0)
    first, second, third = (list(suggest(history)) for _ in range(3))
    told = "the best two of this space, then larger batches"
    assert [c["micro_batch_size"] for c in first] == [16, 8, 64, 32], told
    assert second[:4] == first
    assert len(second) == len(first) + len(configurations.neighbours(space, best.config))
    assert third == first, "the sampler has every other turn to itself"


def test_without_a_baseline_there_are_no_heuristics(space):
    assert list(heuristics.Heuristics([space.baseline_config], seed=0)(History([], space))) == []


@pytest.fixture
def suggested(planned, make_trial):
    """Returns the proposals, without lengths, after the baseline, its half and trials of these settings."""

    def suggest(*others, length=20_000):
        whole = planned.baseline_config
        half = {**whole, "length": 10_000}
        trials = [make_trial(0, 10, curve=[0.3], **whole), make_trial(1, 10, curve=[0.26], **half)]
        for quality, speed, config in others:
            given = {**whole, "length": length, **config}
            trials.append(make_trial(len(trials), speed, curve=[quality], **given))
        proposals = heuristics.Heuristics([], 0)(History(trials, planned))
        return [{n: v for n, v in c.items() if v != whole[n] and n != "length"} for c in proposals]

    return suggest


def test_equal_trainings_come_before_a_higher_rate_and_larger_batches(suggested):
    found = suggested()
    rate = found.index({"learning_rate": 2e-4})
    equal = [(name, value) for config in found[:rate] for name, value in config.items()]
    assert len(equal) == rate, "one setting each"
    assert {name for name, _ in equal} == {"precision", "num_workers"}
    assert [value for name, value in equal if name == "num_workers"] == [4, 0]
    assert [config["micro_batch_size"] for config in found[rate + 1 :]] == [64, 32]


def test_a_setting_is_tried_with_one_other_value(suggested):
    found = suggested((0.3, 9, {"num_workers": 4}))
    assert not [config for config in found if config.keys() == {"num_workers"}]
    assert [config for config in found if config.keys() == {"precision"}]


def test_the_best_rate_is_doubled_within_its_range(suggested):
    tried = {"num_workers": 4, "precision": "bf16", "learning_rate": 0.8e-4}
    assert suggested((0.34, 10, tried))[0] == tried | {"learning_rate": 1.6e-4}
    highest = suggested((0.34, 10, tried | {"learning_rate": 2e-4}))
    assert highest[0] == tried | {"micro_batch_size": 64, "learning_rate": 4e-4}
