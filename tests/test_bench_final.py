"""Which rule picks the true winner, on made-up trainings whose ends are known."""

import math
import random
import sys
from pathlib import Path

import pytest

from autotune.core.trial import Outcome, Status
from autotune.space import configurations, spaces
from lab.replay.table import Header, Point, Run, Table

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SPACE = """
workload: some.module:fit
baseline: {micro_batch_size: 4, learning_rate: 1e-3}
knobs:
  micro_batch_size: {choice: [4, 8]}
  learning_rate:    {scale: sqrt, multiplier: {choice: [1.0, 2.0]}}
objective: {quality: accuracy, select: same-quality}
budget: {samples_per_trial: 1000}
"""
STEEP, FLAT, LATE = (
    (lambda x: 1 - 0.5**x),
    (lambda x: 0.6 * min(1.0, x)),
    (lambda x: 1 - 0.5 ** max(0, x - 2)),
)


@pytest.fixture
def final(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import bench_final

    yield bench_final
    sys.modules.pop("bench_final")


def curve(final, samples_per_s, learnt, points=20):
    """Evaluated every 100 samples; `learnt` is the quality by hundreds of samples."""
    qualities = [(100 * i, learnt(i)) for i in range(1, points + 1)]
    return [final.Seen(n, n / samples_per_s, q, q - 5) for n, q in qualities]


def trainings(final, *curves, same=()):
    return [final.Training(str(i), i == 0 or i in same, (c, c)) for i, c in enumerate(curves)]


def test_smoothing_keeps_a_line_and_shortens_it(final):
    line = curve(final, 10, lambda i: i / 10, points=6)
    assert final.smoothed(line, 1) == line
    means = final.smoothed(line, 2)
    assert [seen.samples for seen in means] == [150, 250, 350, 450, 550]
    assert [seen.quality for seen in means] == pytest.approx([0.15, 0.25, 0.35, 0.45, 0.55])
    assert len(final.smoothed(line[:1], 5)) == 1


@pytest.mark.parametrize(
    ("qualities", "target", "seconds"),
    [
        ([0.1, 0.2, 0.3], 0.25, 25.0),
        ([0.1, 0.2, 0.3], 0.31, math.inf),
        ([0.1, 0.2, 0.3], 0.05, 10.0),  # before it was first looked at
        ([0.1, 0.4, 0.2, 0.4], 0.3, 35.0),  # reached, and not held
        ([], 0.1, math.inf),
    ],
)
def test_a_target_is_reached_between_two_evaluations_and_held(final, qualities, target, seconds):
    points = [final.Seen(100 * i, 10.0 * i, q, -q) for i, q in enumerate(qualities, 1)]
    assert final.seconds_to(points, final.quality, target) == pytest.approx(seconds)


def test_a_trial_has_the_first_evaluation_from_its_end_on(final):
    steep = curve(final, 10, STEEP)
    assert [len(final.within_samples(steep, n)) for n in (100, 101, 150, 2000, 9999)] == [1, 2, 2, 20, 20]
    assert [len(final.within_seconds(steep, s)) for s in (9.9, 10, 19.9, 9999)] == [0, 1, 1, 20]


@pytest.mark.parametrize("rule", ["keep", "quality", "loss"])
def test_the_faster_of_two_that_learn_the_same_is_picked(final, rule):
    slow, fast = curve(final, 10, STEEP), curve(final, 20, STEEP)
    assert final.pick(rule, trainings(final, slow, fast), [slow, fast], 400, 0.95) == 1


def test_keep_takes_what_is_fast_and_time_to_quality_what_learns_fast(final):
    """After 500 samples the third one keeps 85%, and trains faster; the second one was there before it."""
    slow, steep, flat = curve(final, 10, STEEP), curve(final, 30, STEEP), curve(final, 40, LATE)
    three = [slow, steep, flat]
    assert final.fastest_that_keeps(three, 500, 0.85) == 2
    assert final.first_there(three, 500, 0.85, final.quality) == 1


def test_what_needs_more_samples_but_less_time_wins_by_the_time_alone(final):
    slow, late = curve(final, 10, STEEP), curve(final, 100, LATE)
    assert final.fastest_that_keeps([slow, late], 200, 0.95) == 0
    assert final.first_there([slow, late], 200, 0.95, final.quality) == 1


def test_nothing_is_picked_if_no_configuration_reaches_the_quality(final):
    slow, flat = curve(final, 10, STEEP), curve(final, 40, FLAT)
    for rule in final.RULES:
        assert final.pick(rule, trainings(final, slow, flat), [slow, flat], 800, 0.95) == 0


def test_of_those_that_train_the_same_the_fastest_is_picked(final):
    three = [curve(final, speed, STEEP) for speed in (10, 20, 30)]
    assert final.pick("same", trainings(final, *three, same=(1,)), three, 400, 0.95) == 1


def test_the_truth_is_the_time_to_the_end_and_what_is_given_up_of_it(final):
    slow, fast, flat = curve(final, 10, STEEP), curve(final, 20, STEEP), curve(final, 40, FLAT)
    truth = final.endings([slow, fast, flat], 1000)
    assert truth[0].to_quality_s == pytest.approx(80)  # the middle of its last five evaluations
    assert truth[1].to_quality_s == pytest.approx(40)
    assert truth[2].to_quality_s == math.inf
    assert truth[0].given_up == truth[1].given_up == 0
    assert truth[1].given_up_s < 0, "in as many seconds it gets further"
    assert truth[2].given_up == pytest.approx(0.4, abs=0.02)
    held = [final.hold(i, truth) for i in range(3)]
    assert [one.to_quality for one in held] == [2.0, 1.0, math.inf]
    assert final.line("some 5%", held).split()[:5] == ["some", "5%", "33%", "1.50x", "33%"]


def test_a_seed_plays_the_trial_and_the_others_are_the_truth(final):
    one, other = curve(final, 10, STEEP), curve(final, 10, FLAT)
    both = [final.Training("0", True, (one, other))]
    drawn = [final.draw(both, random.Random(seed)) for seed in range(10)]
    pairs = [(d.trials[0] == one, d.truths[0][-1].quality == pytest.approx(0.6)) for d in drawn]
    assert set(pairs) == {(True, True), (False, False)}


def made_up(seeds=2, timed=True):
    space = spaces.complete(spaces.parse(SPACE, "test"), "test")
    table = Table(Header(space, {}))
    for config in configurations.allowed(space):
        batch = config["micro_batch_size"]
        steps = {"step_samples": (batch,) * 50, "step_s": (0.2 + 0.01 * batch,) * 50}
        if timed:
            table.add(Run(config, 0, Outcome(Status.COMPLETED), timed=True, **steps))
        for seed in range(seeds):
            points = tuple(Point(100 * i, 0.0, STEEP(i) - 0.001 * seed, 2.0 - 0.1 * i) for i in range(1, 11))
            table.add(Run(config, seed, Outcome(Status.COMPLETED), timed=False, evaluations=points))
    return table


def test_a_table_is_read_as_trainings_the_baseline_first(final):
    table = made_up()
    found = final.trainings_of(table, table.space.baseline_config)
    assert [len(one.runs) for one in found] == [2, 2, 2, 2]
    assert [one.is_same for one in found] == [True, False, False, False]
    assert found[0].runs[0][0] == pytest.approx((100, 100 / (4 / 0.24), 0.5, -1.9))
    assert final.trainings_of(made_up(seeds=1), table.space.baseline_config) == []
    assert final.trainings_of(made_up(timed=False), table.space.baseline_config) == []


def test_every_rule_is_shown_for_every_length_of_a_trial(final):
    found = final.trainings_of(made_up(), made_up().space.baseline_config)
    lines = final.rows(found, 1000, 0.95, draws=5)
    assert len(lines) == len(final.RULES) * len(final.SHARES) + 1
    assert all("1.00x" in line for line in lines if not line.startswith("same"))
