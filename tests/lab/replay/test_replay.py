"""Whole searches over an invented table, in simulated time, by the search's own code."""

import random
from dataclasses import replace

import pytest

from autotune.core.trial import Status, Trial
from autotune.judging.decisions import racing
from autotune.judging.decisions.stopping import Rival, Threshold
from autotune.judging.measurement import turns
from autotune.space import configurations, spaces
from lab.replay import replay, scoring
from lab.replay.drift import Drift
from lab.replay.replay import Machine
from lab.replay.scoring import Truth
from lab.replay.table import Header, Point, Table
from tests.autotune.conftest import made_up_run


def test_equal_seeds_give_equal_searches(recorded):
    first, again = replay.search(recorded, 1, 8), replay.search(recorded, 1, 8)
    assert first == again
    others = [[t.config for t in replay.search(recorded, seed, 8).trials] for seed in (2, 3, 4)]
    assert any(other != [t.config for t in first.trials] for other in others)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_replayed_search_finds_the_best_and_confirms_it(recorded, seed):
    result = replay.search(recorded, seed, 12)
    assert result.claims_gain
    assert Truth(recorded).share(result.winner) >= 0.95
    searched = [t for t in result.trials if t.kind == "searched"]
    assert len(searched) <= 12
    assert searched[0].config == recorded.space.baseline_config
    assert any(t.race for t in result.trials)
    assert {t.repeat.round for t in result.trials if t.repeat} >= {0, 1}, "the pilot, and a seed of its own"
    assert result.seconds == pytest.approx(sum(t.seconds for t in result.trials))
    assert result.moments[-1].seconds < result.seconds, "confirming comes after"
    assert all(t.ablation_of is None for t in result.trials), "and nothing after that"


def test_a_search_that_keeps_the_effective_batch_tries_nothing_else(grid):
    values = spaces.to_values(grid)
    values["baseline"] |= {"micro_batch_size": 4, "accumulation_steps": 4}
    values["knobs"] |= {
        "micro_batch_size": {"choice": [1, 2, 4, 8, 16]},
        "accumulation_steps": {"keep": "effective_batch_size"},
    }
    space = spaces.complete(spaces.from_values(values, "kept"), "kept")
    table, rng = Table(Header(space, {})), random.Random(0)
    for config in configurations.allowed(space):
        for seed in range(3):
            table.add(made_up_run(space, config, seed, rng))
    result = replay.search(table, 0, 20)
    assert result.claims_gain
    tried = [t.config for t in result.trials if t.kind == "searched"]
    assert {space.effective_batch_size(config) for config in tried} == {16}
    assert max(config["micro_batch_size"] for config in tried) == 16
    assert {config["accumulation_steps"] for config in tried if config["micro_batch_size"] == 16} == {1}


def test_an_a_a_search_rarely_claims_a_gain(recorded):
    baseline = recorded.space.baseline_config
    claims = [replay.search(recorded, seed, 6, everything_is=baseline).claims_gain for seed in range(12)]
    assert sum(claims) <= 2


@pytest.fixture
def machine(recorded):
    return Machine(recorded, seed=0)


def test_a_trial_reads_as_it_was_recorded(recorded, machine):
    done = machine.run(Trial(1, recorded.space.baseline_config), None)
    shown = done.measurement
    assert done.outcome.status is Status.COMPLETED
    assert [p.samples for p in shown.curve] == [100, 200, 300, 400]
    assert shown.quality == pytest.approx(0.2, rel=0.1)
    assert shown.throughput.samples_per_s == pytest.approx(4 / 0.44, rel=0.05)
    assert done.seconds == pytest.approx(1 + 99 * 0.44 + 4 * 0.5, rel=0.05)
    assert shown.peak_memory_bytes == 2**26


def test_its_speed_has_its_evaluations_in_it_if_they_count(recorded, machine):
    goal = recorded.space.objective.model_copy(update={"speed": "wall"})
    recorded.space = recorded.space.model_copy(update={"objective": goal})
    shown = machine.run(Trial(1, recorded.space.baseline_config), None).measurement
    assert shown.throughput.samples_per_s == pytest.approx(100 / (25 * 0.44 + 0.5), rel=0.03)


def test_a_recorded_out_of_memory_is_replayed(recorded, machine):
    big = {**recorded.space.baseline_config, "micro_batch_size": 32}
    done = machine.run(Trial(1, big), None)
    assert Trial(1, big, done.outcome, done.measurement).out_of_memory
    assert done.seconds == 1.0


def test_a_trial_that_the_bar_stops_costs_no_more_than_until_then(recorded, machine):
    threshold = Threshold(rivals=(Rival(2, 1000.0, shared=False, samples=400),))
    done = machine.run(Trial(1, recorded.space.baseline_config), threshold)
    assert done.outcome.status is Status.STOPPED
    assert "trial 2 reaches 1000.0" in done.outcome.reason
    assert done.seconds < 20


def test_unrecorded_settings_are_an_error(recorded, machine):
    config = recorded.space.baseline_config
    with pytest.raises(KeyError, match="no timed run of"):
        machine.run(Trial(1, {**config, "micro_batch_size": 5}), None)
    with pytest.raises(KeyError, match="no quality of"):
        machine.run(Trial(1, {**config, "learning_rate": 5.0}), None)


@pytest.fixture
def drifting(recorded):
    """A table whose machine loses speed to other programs, every other five seconds."""
    recorded.drift = Drift((1.4,) * 5 + (0.6,) * 5)
    return recorded


def race_of(table, *knobs, seed=0):
    members = [Trial(n, configurations.configure(table.space, drawn)) for n, drawn in enumerate(knobs)]
    machine = Machine(table, seed)
    race = Trial(len(members), members[0].config, race=tuple(m.number for m in members))
    return machine.run(race, None, members=members, at_s=3.0)


SLOW = {"micro_batch_size": 4, "num_workers": 0, "learning_rate": 1.0}
FAST = {"micro_batch_size": 16, "num_workers": 1, "learning_rate": 1.0}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_race_measures_the_speedup_whatever_the_drift(drifting, seed):
    done = race_of(drifting, SLOW, FAST, seed=seed)
    assert done.outcome.status is Status.COMPLETED
    slices = done.measurement.slices
    assert {one.number for one in slices} == {0, 1}
    assert all(one.seconds >= racing.turn_s(0.0, 2, 60.0) for one in slices)
    assert [one.number for one in slices[:4]] == [0, 1, 1, 0]
    truth = Truth(drifting)
    fast, slow = (truth.speed(configurations.configure(drifting.space, one)) for one in (FAST, SLOW))
    expected = fast / slow
    assert turns.ratio(slices, 1, 0).value == pytest.approx(expected, rel=0.1)
    starts_s, launches = done.seconds - sum(one.seconds for one in slices), slices[-1].launch
    assert starts_s == pytest.approx(2.0 * launches, abs=1.5 * launches), "two are started in each launch"


def test_equal_members_race_for_as_long_as_they_may_and_no_gain_is_sure(drifting):
    done = race_of(drifting, SLOW, SLOW)
    assert done.seconds < 2 * racing.most_s([0.0])
    assert not turns.ratio(done.measurement.slices, 1, 0, racing.LOOK_LEVEL).is_above(1)


def test_a_member_that_has_never_fitted_is_an_error(recorded):
    with pytest.raises(KeyError, match="no completed run"):
        race_of(recorded, SLOW, {**FAST, "micro_batch_size": 32})


def test_with_a_drift_equal_settings_are_as_fast_in_the_long_run(drifting):
    trial = Trial(1, configurations.configure(drifting.space, SLOW))
    runs = [Machine(drifting, seed).run(trial, None).measurement for seed in range(4)]
    speeds = [run.throughput.samples_per_s for run in runs]
    assert speeds == pytest.approx([Truth(drifting).speed(trial.config)] * 4, rel=0.1)


def test_a_trial_is_slow_while_the_machine_is_slow(drifting):
    drifting.drift = Drift((1.4,) * 60 + (0.6,) * 60)
    machine, trial = Machine(drifting, 0), Trial(1, configurations.configure(drifting.space, SLOW))
    first, later = (machine.run(trial, None, at_s=at_s) for at_s in (0.0, 60.0))
    begun = sorted(done.measurement.curve[0].seconds for done in (first, later))
    assert begun[1] > 1.5 * begun[0]


def test_a_replayed_search_on_a_drifting_machine_finds_the_best(drifting):
    result = replay.search(drifting, 0, 12)
    assert Truth(drifting).speed(result.winner) > Truth(drifting).speed(drifting.space.baseline_config)


def test_an_evaluation_has_its_recorded_fields(recorded, grid):
    """The search reads chance and collapse from the records, as from the workload's own."""
    config = grid.baseline_config
    point = Point(400, 0.5, 0.1, 2.5, 0.16, True)
    run = replace(recorded.timed(config)[0], evaluations=(point,))
    shown = Machine(Table(Header(grid, {}), [run]), 0).run(Trial(1, config), None).measurement
    assert shown.scores["val_loss"] == 2.5
    assert shown.scores["bleu_4_chance"] == 0.16


def test_the_memory_limit_is_from_the_recorded_runs(recorded, grid):
    assert replay.memory_limit(recorded) == 2**30
    assert replay.memory_limit(Table(Header(grid, {}))) is None


def test_the_truth_is_the_mean_of_the_recorded_runs(recorded):
    truth, config = Truth(recorded), recorded.space.baseline_config
    fast = configurations.configure(
        recorded.space, {"micro_batch_size": 16, "num_workers": 1, "learning_rate": 1.0}
    )
    spoiled = configurations.configure(
        recorded.space, {"micro_batch_size": 16, "num_workers": 1, "learning_rate": 2.0}
    )
    assert truth.speed(config) == pytest.approx(4 / 0.44, rel=0.02)
    assert truth.speed({**config, "micro_batch_size": 32}) == 0.0
    assert truth.best == truth.merit(fast)
    assert truth.share(fast) == 1.0
    assert truth.share(spoiled) == 0.0
    assert truth.share(config) < 0.95


@pytest.mark.parametrize("sign", [1, -1])
def test_the_baseline_keeps_its_own_quality_be_it_negative(recorded, sign):
    runs = [run for config in configurations.allowed(recorded.space) for run in recorded.qualities(config)]
    signed = [
        replace(run, evaluations=tuple(p._replace(quality=sign * p.quality) for p in run.evaluations))
        for run in runs
    ]
    truth, config = Truth(Table(recorded.header, signed)), recorded.space.baseline_config
    doubled = configurations.changed(recorded.space, config, {"learning_rate": 2.0})
    assert truth.quality(config) * sign > 0
    assert truth.quality(config) >= truth.target
    assert (truth.quality(doubled) >= truth.target) is (sign < 0), "half of the quality, or half of the loss"


def test_a_score_has_the_time_until_right_for_good_and_the_loss(recorded):
    result, truth = replay.search(recorded, 0, 12), Truth(recorded)
    found = scoring.score(result, truth)
    assert 0 < found.search_s <= result.moments[-1].seconds
    assert found.search_s < found.confirmed_s <= found.whole_s == result.seconds
    assert 0 < found.trials <= len(result.trials)
    assert not found.is_wrong
    assert found.out_of_memory == sum(t.out_of_memory for t in result.trials)
    assert 0 < found.lost_s < found.whole_s
    assert 0 <= found.regret < 0.05
    assert scoring.line("ours", [found, found]).endswith(f"    0 {found.regret:6.1%}")


def test_a_negative_quality_is_kept_within_the_same_share_of_its_size(recorded):
    def shifted(run):
        points = tuple(point._replace(quality=point.quality - 2.0) for point in run.evaluations)
        return replace(run, evaluations=points)

    config = recorded.space.baseline_config
    negative = Table(recorded.header, [shifted(run) for run in recorded.qualities(config)])
    assert Truth(negative).quality(config) == pytest.approx(-1.8, abs=0.02)
    assert -1.8 * 1.1 < Truth(negative).target < -1.8
