"""Races of synthetic slices: disturbances do not decide them, and luck rarely does."""

import math
import random
import statistics

import pytest

from autotune.core.measurement import Slice
from autotune.judging.decisions import racing
from autotune.judging.measurement import turns

SD = 0.05  # of a slice's speed, as on a machine that others use
PROCESS_SD = 0.02  # between processes with the same settings
MOST_ROUNDS, ROUNDS = 72, 4  # in all, and of a launch


def make_slice(number, turn, speed, launch=None):
    return Slice(number, turn, samples=100, seconds=100 / speed, steps=10, launch=launch or turn)


def pairs(logs, launches=None):
    """Slices of 0 and 1 whose rounds have these log-ratios; each is a launch, unless `launches` are given."""
    return [
        one
        for turn, log in enumerate(logs, start=1)
        for launch in [launches[turn - 1] if launches else turn]
        for one in (make_slice(0, turn, 50.0, launch), make_slice(1, turn, 50.0 * math.exp(log), launch))
    ]


def raced(speeds, rng, walk=0.0, spoilt=0.0):
    """All slices of a race between members of those speeds.

    The machine's speed is a random walk of step `walk`; in a share `spoilt` of the turns it loses 40%.
    """
    slices, members, common = [], range(len(speeds)), 0.0
    for turn in range(1, MOST_ROUNDS + 1):
        if not (order := next_round(slices, members)):
            break
        launch, within = divmod(turn - 1, ROUNDS)
        if not within:
            processes = [rng.gauss(0, PROCESS_SD) for _ in members]
        for number in order:
            common += rng.gauss(0, walk)
            spoiling = 0.6 if rng.random() < spoilt else 1.0
            speed = speeds[number] * spoiling * math.exp(common + processes[number] + rng.gauss(0, SD))
            slices.append(make_slice(number, turn, speed, launch + 1))
    return slices


def trainings(slices, members):
    """Trainings of equal length."""
    return racing.Trainings(slices, dict.fromkeys(members, 100))


def next_round(slices, members):
    return trainings(slices, members).next_round()


def rounds(slices):
    return slices[-1].round


def test_with_slow_steps_a_race_goes_on_until_an_interval_is_known():
    assert not racing.is_late(399, 400, 20, 100)
    assert racing.is_late(400, 400, 12, 1000)
    assert not racing.is_late(400, 400, 11, 100)
    assert racing.is_late(1200, 400, 11, 100)
    assert not racing.is_late(1200, 400, 11, 1000), "long trials have time for slow steps"
    assert racing.is_late(4000, 400, 11, 1000)


def test_a_ratio_uses_the_rounds_that_both_were_in():
    slices = [*pairs([0.1, 0.1]), make_slice(1, 3, 1.0), make_slice(0, 4, 1.0)]
    found = turns.ratio(slices, 1, 0)
    assert found.value == pytest.approx(math.exp(0.1))
    assert turns.count_rounds(slices, 1, 0) == turns.count_launches(slices, 1, 0) == 2
    assert turns.ratio(slices, 1, 5) is None


@pytest.mark.parametrize(
    ("count", "level", "rank"),
    [(10, 0.95, 9), (10, 0.99, 4), (10, 0.998, 1), (9, 0.998, 0), (12, 0.9995, 1), (6, 0.95, 1)],
)
def test_an_intervals_ends_are_those_of_signed_ranks(count, level, rank):
    """Enumerates the distribution by its definition: all signs are equally likely."""
    sums = sorted(
        sum(place for place in range(1, count + 1) if signs >> (place - 1) & 1) for signs in range(2**count)
    )
    share = sum(one < rank for one in sums) / len(sums)
    beyond = sum(one <= rank for one in sums) / len(sums)
    assert 2 * share <= 1 - level + 1e-12
    assert 2 * beyond > 1 - level + 1e-12
    logs = [0.3 * place for place in range(count)]  # so far apart that launches matter less
    found = turns.ratio(pairs(logs, [1] * count), 1, 0, level)
    means = sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])
    ends = (math.exp(means[rank - 1]), math.exp(means[-rank])) if rank else (None, None)
    assert (found.low, found.high) == pytest.approx(ends)


def test_rounds_of_few_processes_are_not_certain():
    """The processes of one launch may be 20% faster than those of another: its rounds cannot show that."""
    by_launch = [log + apart for apart in (0.2, 0.0, 0.1) for log in (0.0, 0.001, 0.002, 0.003)]
    launches = [1] * 4 + [2] * 4 + [3] * 4
    one, three, many = (turns.ratio(pairs(by_launch, each), 1, 0) for each in ([1] * 12, launches, None))
    assert one.value == pytest.approx(math.exp(0.1), rel=0.01)
    assert (one.low < 1, three.low < 1, many.low > 1) == (True, True, True)


def test_launches_that_agree_by_luck_are_not_certain():
    """Student's interval of two equal values would have no width."""
    agree = turns.ratio(pairs([0.1] * 12, [1] * 6 + [2] * 6), 1, 0)
    more = turns.ratio(pairs([0.1] * 12, [1] * 2 + [2] * 2 + [3] * 2 + [4] * 2 + [5] * 2 + [6] * 2), 1, 0)
    assert 0.05 < agree.part < 0.1
    assert more.part < agree.part / 2


def test_too_few_rounds_give_no_interval():
    found = turns.ratio(pairs([0.3, 0.31, 0.29]), 1, 0)
    assert (found.low, found.high) == (None, None)


def test_a_slowdown_of_all_members_changes_nothing():
    slices = pairs([0.1, 0.12, 0.08] * 5)
    slowed = [make_slice(one.number, one.round, one.samples_per_s / one.round**2) for one in slices]
    found, same = turns.ratio(slices, 1, 0), turns.ratio(slowed, 1, 0)
    assert (found.value, found.low, found.high) == pytest.approx((same.value, same.low, same.high))


def test_one_disturbed_round_hardly_matters():
    logs = [0.1 + 0.001 * (turn % 5) for turn in range(15)]
    found, spoilt = turns.ratio(pairs(logs), 1, 0), turns.ratio(pairs([*logs[:-1], -3.0]), 1, 0)
    assert spoilt.value == pytest.approx(found.value, rel=0.001)
    assert spoilt.low > 1.09


def test_every_other_round_is_in_reverse():
    assert next_round([], (0, 4, 9)) == (0, 4, 9)
    assert next_round([make_slice(n, 1, 1.0) for n in (0, 4, 9)], (0, 4, 9)) == (9, 4, 0)


def test_beaten_members_are_dropped_and_the_race_ends_without_others():
    turns = range(1, 21)
    speeds = {0: 10.0, 1: 10.0, 2: 20.0, 3: 15.0}
    noisy = [(n, turn, speed * (1 + 0.05 * (turn % 3))) for turn in turns for n, speed in speeds.items()]
    slices = [make_slice(*one) for one in noisy]
    assert next_round([one for one in slices if one.number != 2], (0, 1, 3)) == ()
    assert next_round(slices, (0, 1)) == ()
    unsure = [make_slice(n, turn, (11.0, 20.0)[turn % 2] if n == 2 else s) for n, turn, s in noisy]
    assert next_round(unsure, (0, 1, 2)) == (0, 2)


def test_the_soonest_is_judged_relative_to_the_first():
    slices = [make_slice(n, turn, speed) for turn in (1, 2) for n, speed in ((0, 1.0), (1, 2.0), (2, 3.0))]
    assert trainings(slices, (0, 1, 2)).soonest((1, 2)) == 2
    assert trainings([], (0, 1, 2)).soonest((1, 2)) == 1
    longer = racing.Trainings(slices, {0: 100, 1: 100, 2: 200})
    assert longer.soonest((1, 2)) == 1, "the faster one takes twice the samples"


def test_at_equal_speed_the_shorter_training_wins():
    slices = pairs([0.001 * (turn % 5) for turn in range(15)])
    shorter, longer = (racing.Trainings(slices, {0: 100, 1: length}) for length in (50, 200))
    found = shorter.ratio(1)
    assert (found.value, found.low > 1.97) == (pytest.approx(2.0, rel=0.01), True)
    assert longer.ratio(1).high < 0.51
    assert shorter.ratio(0, 1).value == pytest.approx(1 / found.value)
    assert shorter.next_round() == longer.next_round() == (), "both are decided"


@pytest.mark.parametrize(("races", "most"), [(20, 0), pytest.param(200, 4, marks=pytest.mark.long)])
def test_equal_settings_are_rarely_called_faster(races, most):
    """The true share is below 1%; so few races can only tell it from 2%."""
    rng, claimed = random.Random(1), 0
    for _ in range(races):
        found = turns.ratio(raced((100, 100), rng, walk=0.02), 1, 0)
        claimed += found.low > 1
    assert claimed <= most


def test_a_gain_of_two_is_decided_soon():
    rng = random.Random(2)
    races = [raced((100, 200), rng) for _ in range(100)]
    assert 18 <= statistics.median(map(rounds, races)) <= 26
    for slices in races:
        found = turns.ratio(slices, 1, 0)
        assert 2 * found.part <= racing.WIDTH or rounds(slices) == MOST_ROUNDS
        assert 1.7 < found.low < 2.2


@pytest.mark.slow
def test_a_gain_of_two_is_found_while_others_use_the_machine():
    rng = random.Random(3)
    races = [raced((100, 200), rng, walk=0.03, spoilt=0.1) for _ in range(20)]
    assert all(turns.ratio(slices, 1, 0).low > 1.5 for slices in races)


@pytest.mark.slow
def test_the_best_of_three_close_members_is_found():
    rng = random.Random(4)
    races = [raced((100, 200, 190, 180.5), rng) for _ in range(100)]
    assert sum(trainings(slices, (0, 1, 2, 3)).soonest((1, 2, 3)) == 1 for slices in races) >= 95


@pytest.mark.long
def test_a_small_gain_is_distinguished_from_none():
    rng = random.Random(5)
    races = [raced((100, 105), rng) for _ in range(100)]
    assert sum(turns.ratio(slices, 1, 0).low > 1 for slices in races) >= 90


@pytest.mark.parametrize(("start_s", "members", "turn_s"), [(0.5, 2, 0.25), (6.0, 2, 0.75), (20.0, 3, 1.0)])
def test_turns_are_longer_where_starting_costs_more(start_s, members, turn_s):
    assert racing.turn_s(start_s, members, 200.0) == turn_s


@pytest.mark.parametrize("members", [2, 4])
@pytest.mark.parametrize("start_s", [0.5, 4.0, 8.0, 10.0])  # of a process
@pytest.mark.parametrize("trial_s", [10.0, 15.0, 25.0, 45.0, 100.0])
def test_longer_turns_leave_enough_rounds_wherever_short_ones_do(start_s, members, trial_s):
    most_s = racing.most_s([trial_s])

    def rounds(turn_s: float) -> int:
        passed_s, done = 0.0, 0
        while passed_s < most_s:
            passed_s, begun, started_s = passed_s + members * start_s, done, passed_s + members * start_s
            while passed_s < most_s and not racing.is_enough_of_a_launch(
                done - begun, passed_s - started_s, members * start_s
            ):
                passed_s, done = passed_s + members * turn_s, done + 1
        return done

    if rounds(0.25) >= 12:
        assert rounds(racing.turn_s(members * start_s, members, most_s)) >= 12
