"""The ranking, the front, and the quality to keep."""

import math
import random
from dataclasses import replace

import pytest

from autotune.core.trial import Repeat
from autotune.judging.decisions import stopping
from autotune.judging.decisions.history import History
from autotune.judging.decisions.objective import Reason
from autotune.space.sections import Objective

KEEP = Objective(keep=0.95)


@pytest.fixture
def held(space):
    """Returns the history of trials that are judged by an objective."""
    return lambda trials, goal=KEEP: History(trials, space.model_copy(update={"objective": goal}))


@pytest.fixture
def win(held):
    """Returns the number of the best of some trials."""

    def winner(trials, goal=KEEP):
        best = held(trials, goal).best
        return None if best is None else best.number

    return winner


def test_the_fastest_that_keeps_the_quality_wins(make_trial, win):
    trials = [
        make_trial(0, 10, 0.20),
        make_trial(1, 40, 0.18),
        make_trial(2, 30, 0.19),
        make_trial(3, 20, 0.3),
    ]
    assert win(trials) == 2


def test_exactly_the_kept_share_is_enough(make_trial, win):
    assert win([make_trial(0, 10, 1.0), make_trial(1, 40, 0.95)]) == 1


def test_the_baseline_wins_when_nothing_faster_keeps_the_quality(make_trial, win):
    assert win([make_trial(0, 10, 0.2), make_trial(1, 40, 0.1), make_trial(2, 5, 0.3)]) == 0


@pytest.mark.parametrize("failure", ["oom", "error", "timeout"])
def test_without_a_baseline_nobody_wins(make_trial, failure, win):
    assert win([make_trial(0, failure=failure), make_trial(1, 40, 0.3)]) is None
    assert win([]) is None


@pytest.mark.parametrize("failure", ["oom", "error", "diverged", "timeout", "lost"])
def test_a_failed_trial_never_wins(make_trial, failure, win):
    assert win([make_trial(0, 10, 0.2), make_trial(1, 99, 0.9, failure=failure)]) == 0


def test_a_trial_without_figures_never_wins(make_trial, win):
    assert win([make_trial(0, 10, 0.2), make_trial(1, None, 0.9), make_trial(2, 99, None)]) == 0


def test_a_trial_over_the_memory_fraction_never_wins(make_trial, win):
    trials = [make_trial(0, 10, 0.2), make_trial(1, 99, 0.2, peak=86, limit=100)]
    assert win(trials) == 0
    trials[1] = make_trial(1, 99, 0.2, peak=85, limit=100)
    assert win(trials) == 1


def test_a_trial_on_another_device_or_code_never_wins(make_trial, held, win):
    baseline, other = make_trial(0, 10, 0.2), make_trial(1, 99, 0.2)
    assert win([baseline, other]) == 1
    for where in ({"device": "another"}, {"revision": "another"}):
        elsewhere = replace(other, measurement=replace(other.measurement, **where))
        assert win([baseline, elsewhere]) == 0
        assert held([baseline, elsewhere]).front == (baseline,)


def test_the_front_has_no_dominated_trial(make_trial, held):
    trials = [
        make_trial(0, 10, 0.20),
        make_trial(1, 40, 0.18, x=1),
        make_trial(2, 30, 0.17, x=2),
        make_trial(3, 20, 0.2, x=3),
    ]
    assert [t.number for t in held(trials).front] == [1, 3]


def test_of_equal_speeds_the_surer_wins(make_trial, win):
    trials = [
        make_trial(0, 10, 0.2, half_width=0.1),
        make_trial(1, 41, 0.2, half_width=9.0, micro_batch_size=32),
        make_trial(2, 40, 0.2, half_width=0.5, micro_batch_size=64),
    ]
    assert win(trials) == 2


def test_settings_that_seem_slower_are_not_better_than_a_baseline_of_uncertain_speed(make_trial, win):
    trials = [
        make_trial(0, 10, 0.2, half_width=3.0),
        make_trial(1, 9.5, 0.2, half_width=0.1, micro_batch_size=32),
        make_trial(2, 10.5, 0.2, half_width=3.0, micro_batch_size=64),
    ]
    assert win(trials[:2]) == 0
    assert win(trials) == 2


def test_a_speed_without_an_interval_does_not_beat_a_baseline_that_has_one(make_trial, win):
    assert win([make_trial(0, 10, 0.2, half_width=0.1), make_trial(1, 99, 0.2)]) == 0
    assert win([make_trial(0, 10, 0.2), make_trial(1, 99, 0.2)]) == 1


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_figure_that_is_not_finite_never_wins(make_trial, number, win):
    assert win([make_trial(0, 10, 0.2), make_trial(1, 99, number)]) == 0
    assert win([make_trial(0, 10, 0.2), make_trial(1, number, 0.9)]) == 0


def test_trials_of_equal_speed_are_ranked_by_quality(make_trial, win):
    baseline = make_trial(0, 10, 0.2, half_width=0.1, micro_batch_size=4)
    first = make_trial(1, 40, 0.2, half_width=0.1, learning_rate=1e-3)
    second = make_trial(2, 38, 0.3, half_width=0.1, learning_rate=2e-3)
    assert win([baseline, first, second]) == 2


@pytest.mark.parametrize("kind", [{"repeat": Repeat(0, 0)}, {"ablation_of": 3}])
def test_repeats_and_ablation_steps_never_win(make_trial, kind, held, win):
    trials = [make_trial(0, 10, 0.2), make_trial(1, 99, 0.9, **kind)]
    assert win(trials) == 0
    assert [t.number for t in held(trials).front] == [0]


def test_the_quality_to_keep_follows_from_all_baseline_runs(make_trial, held, win):
    baseline, trial = make_trial(0, 10, 0.2), make_trial(1, 40, 0.18, micro_batch_size=32)
    assert win([baseline, trial]) == 0
    worse = make_trial(2, 10, 0.16, repeat=Repeat(0, 0))
    assert held([baseline, trial, worse]).baseline_quality == pytest.approx(0.18)
    assert win([baseline, trial, worse]) == 1
    failed = make_trial(2, failure="lost", repeat=Repeat(0, 0))
    assert win([baseline, trial, failed]) == 0


def test_the_noise_is_the_scatter_of_the_baselines_runs(make_trial, held):
    runs = [make_trial(0, 10, curve=[0.9]), make_trial(1, 10, curve=[1.1], repeat=Repeat(0, 0))]
    assert held(runs[:1]).noise is None
    assert held(runs).noise == pytest.approx(0.02**0.5)


def test_a_stopped_trial_never_wins(make_trial, win):
    assert win([make_trial(0, 10, 0.2), make_trial(1, 99, 0.2, stopped=True)]) == 0


def at(target):
    return Objective(target=target)


def test_with_a_target_the_first_at_the_target_wins_whatever_its_speed(make_trial, win):
    trials = [
        make_trial(0, 10, curve=[0.1, 0.1, 0.2, 0.2]),
        make_trial(1, 90, curve=[0.1, 0.1, 0.1], precision="bf16"),
        make_trial(2, 8, curve=[0.2, 0.2], precision="tf32"),
    ]
    assert win(trials, at(0.2)) == 2
    equal = [trials[0], make_trial(3, 5, curve=[0.2, 0.2], precision="bf16")]
    assert win(equal, at(0.2)) == 0, "the higher throughput breaks the tie"
    assert win(trials, at(0.9)) == 0, "no trial has reached it, so the baseline stays"


def test_only_the_baseline_may_miss_the_target(make_trial, held):
    goal = at(0.2)
    baseline, reached, on_average = (
        make_trial(n, 10, curve=curve, half_width=1.0)
        for n, curve in enumerate(([0.1, 0.1], [0.2, 0.2], [0.3, 0.1]))
    )
    for trial in (baseline, reached, on_average):
        assert held([baseline, trial], goal).rejection(trial) is None
    late = make_trial(3, 10, curve=[0.1, 0.3], half_width=1.0, collapsed=True)
    assert held([baseline, late], goal).rejection(late) is Reason.CHANCE
    never = make_trial(4, 10, curve=[0.1, 0.1], half_width=1.0)
    for keep in (0.0, 0.95):
        assert held([baseline, never], Objective(target=0.2, keep=keep)).rejection(never) is Reason.MISSED


def test_a_collapsed_model_is_rejected_if_quality_counts(make_trial, held):
    baseline = make_trial(0, 10, curve=[0.1, 0.2], half_width=1.0)
    trial = make_trial(1, 90, curve=[0.1, 0.2], half_width=1.0, collapsed=True)
    for keep, select, why in (
        (0.9, "same-quality", Reason.CHANCE),
        (0.0, "same-quality", None),
        (0.9, "same-training", None),
    ):
        assert held([baseline, trial], Objective(keep=keep, select=select)).rejection(trial) == why


def test_a_trial_that_breaks_a_constraint_cannot_win(make_trial, held):
    goal = Objective(constraints={"rouge_l": ">= 0.2"})
    baseline = make_trial(0, 10, curve=[0.2], half_width=1.0)
    for score, why in ((0.2, None), (0.19, Reason.BROKEN)):
        trial = make_trial(1, 90, curve=[0.2], half_width=1.0, scores={"rouge_l": score})
        assert held([baseline, trial], goal).rejection(trial) == why


def test_same_training_rejects_other_trainings(make_trial, held):
    baseline = make_trial(0, 10, curve=[0.2], half_width=0.1, dropout=0.1)
    other = make_trial(1, 11, curve=[0.2], half_width=0.1, dropout=0.2)
    why = held([baseline, other], Objective(select="same-training")).rejection(other)
    assert why is Reason.ANOTHER
    assert held([baseline, other], Objective()).rejection(other) is None


def test_same_training_ignores_quality(make_trial, win):
    trials = [
        make_trial(0, 10, curve=[0.2], half_width=0.1),
        make_trial(1, 20, curve=[0.1], half_width=0.1, precision="bf16"),
    ]
    assert win(trials, Objective(select="same-training")) == 1
    assert win(trials, Objective()) == 0


def test_negative_qualities_are_kept_or_rejected_as_well(make_trial, held, win):
    trials = [
        make_trial(0, speed=10.0, curve=[-3.0, -2.0]),
        make_trial(1, speed=20.0, curve=[-3.0, -2.04]),
        make_trial(2, speed=30.0, curve=[-3.0, -2.5]),
    ]
    assert win(trials) == 1
    history = held(trials)
    assert history.rejection(trials[2]) is Reason.QUALITY
    assert history.least_quality == pytest.approx(-2.05)
    assert [history.keeps_quality(trial) for trial in trials[1:]] == [True, False]


def test_a_history_stays_unchanged_when_a_trial_begins_or_ends(make_trial, held):
    begun = replace(make_trial(1), outcome=None)
    before = held([make_trial(0, 10, 0.2)])
    assert [t.number for t in before.ranked] == [0]
    running = before.after(begun)
    assert ([t.number for t in running.trials], [t.number for t in running.ranked]) == ([0, 1], [0])
    ended = running.after(make_trial(1, 40, 0.2, micro_batch_size=32))
    assert ([t.number for t in ended.trials], [t.number for t in ended.ranked]) == ([0, 1], [1, 0])
    assert ([t.number for t in before.trials], before.best.number) == ([0], 0)
    assert ended.trial(1).completed
    assert running.trial(1) is begun


def test_the_runs_of_a_trial_are_its_own_and_its_completed_repeats(make_trial, held):
    repeats = [make_trial(n, 10, 0.2, repeat=Repeat(0, n)) for n in (2, 3)]
    failed = make_trial(4, failure="lost", repeat=Repeat(0, 4))
    history = held([make_trial(0, 10, 0.2), make_trial(1, 40, 0.2), *repeats, failed])
    assert [t.number for t in history.runs_of(0)] == [0, 2, 3]
    assert [t.number for t in history.runs_of(1)] == [1]
    assert history.runs_of(9) == []
    assert [t.number for t in history.searched] == [0, 1]


def test_quality_is_judged_at_the_end_and_a_target_at_any_time(make_trial, held):
    baseline = make_trial(0, 10, curve=[0.2] * 8)
    lucky = make_trial(1, 40, curve=[0.1] * 7 + [0.2], micro_batch_size=32)
    history = held([baseline, lucky])
    assert (history.least_quality, history.keeps_quality(lucky)) == (pytest.approx(0.19), False)
    assert history.rejection(lucky) is Reason.QUALITY
    reached = held([baseline, lucky], at(0.15))
    assert (reached.least_quality, reached.keeps_quality(lucky)) == (0.15, True)
    assert held([lucky]).keeps_quality(lucky) is None, "there is nothing to keep"


def test_nobody_is_better_than_a_baseline_that_is_not_ranked(make_trial, held):
    unmeasured, faster = make_trial(0, None, 0.2), make_trial(1, 40, 0.2)
    history = held([unmeasured, faster])
    assert ([t.number for t in history.ranked], history.better) == ([1], ())
    assert [t.number for t in held([make_trial(0, 10, 0.2), faster]).better] == [1]


def test_trials_that_refer_to_missing_ones_are_left_out(make_trial, space):
    whole = [make_trial(number, 100.0, 0.2) for number in range(2)]
    orphans = [
        make_trial(3, 100.0, 0.2, repeat=Repeat(2, 1)),
        make_trial(4, race=(0, 2)),
        make_trial(5, 100.0, ablation_of=2),
    ]
    assert History([*whole, *orphans], space).trials == tuple(whole)


LOSS = Objective(minimize="val_loss", within=0.05)


def test_the_fastest_loss_within_the_slack_wins(make_trial, held, win):
    """Inside the tuner, a loss is negative."""
    losses = {0: -2.0, 1: -2.05, 2: -2.06, 3: -1.5}
    trials = [make_trial(n, 10 + 10 * n, curve=[loss], half_width=0.1, x=n) for n, loss in losses.items()]
    assert win(trials, LOSS) == 3
    assert win(trials[:3], LOSS) == 1
    assert held(trials, LOSS).rejection(trials[2]) is Reason.QUALITY


def test_a_target_for_a_loss_is_turned(make_trial, held):
    goal = Objective(minimize="val_loss", target=2.0)
    trials = [make_trial(n, 10, curve=[-3.0, end, end], half_width=0.1) for n, end in ((0, -1.9), (1, -2.1))]
    history = held(trials, goal)
    assert history.least_quality == -2.0
    assert history.to_target.samples(trials[0]) is not None
    assert history.rejection(trials[1]) is Reason.MISSED


def test_how_late_a_trial_may_be_depends_on_how_much_equal_runs_differ(make_trial, held):
    goal = Objective(select="same-quality", target=0.2)

    def times_late(*second):
        curves = [[0.1, 0.2, 0.3, 0.3, 0.3], *second]
        runs = [make_trial(n, 10, curve=c, repeat=Repeat(0, 0) if n else None) for n, c in enumerate(curves)]
        return held(runs, goal).times_late

    unknown = times_late()
    assert unknown == pytest.approx(1 + 1.5 * math.sqrt(2) * 0.15)
    assert times_late([0.1, 0.2, 0.3]) < unknown < times_late([0.0, 0.1, 0.1, 0.2, 0.3])


def test_a_trial_that_breaks_a_constraint_is_not_on_the_front(make_trial, held):
    goal = Objective(constraints={"rouge_l": ">= 0.2"}, select="pareto")
    trials = [
        make_trial(n, 10 * n + 10, 0.2, scores={"rouge_l": score}, x=n)
        for n, score in enumerate((0.1, 0.3, 0.1))
    ]
    assert [t.number for t in held(trials, goal).front] == [1]
    assert [t.number for t in held(trials[::2], goal).front] == [0], "the baseline is excepted"


def test_any_loss_may_win_if_any_quality_will_do(make_trial, held):
    goal = Objective(minimize="val_loss", keep=0)
    trials = [
        make_trial(0, 10, curve=[-2.0, -2.0], half_width=0.1),
        make_trial(1, 10, curve=[-2.0, -2.0], half_width=0.1, repeat=Repeat(0, 0)),
        make_trial(2, 90, curve=[-9.0, -9.0], half_width=0.1, x=2),
    ]
    history = held(trials, goal)
    assert history.best.number == 2
    assert history.keeps_quality(trials[2]) is None, "it ended as soon as its speed was known"
    assert not history.is_out_of_reach(trials[2])
    assert stopping.threshold(history).curve == ()


OBJECTIVES = [KEEP, Objective(keep=0.95, target=0.2), Objective(select="pareto"), Objective(keep=0.0)]


def judgements(history):
    seconds = [history.to_target.seconds(t) for t in history.trials]
    factors = [history.factor(t) for t in history.trials]
    reasons = [history.rejection(t) for t in history.searched if t.completed]
    runs = [history.runs_of(t.number) for t in history.searched]
    lasting = (history.trial_s, history.speeds.drift, history.noise, stopping.threshold(history))
    return history.ranked, history.better, history.front, seconds, factors, reasons, runs, lasting


@pytest.mark.parametrize("goal", OBJECTIVES, ids=["keep", "target", "pareto", "speed"])
def test_a_history_that_grew_trial_by_trial_judges_as_one_made_of_all(make_trial, held, goal):
    rng, ended = random.Random(0), []
    for number in range(40):
        figures = (rng.uniform(5, 20), rng.uniform(0.1, 0.3))
        repeat = Repeat(0, number) if number in (1, 20) else Repeat(2, number) if number == 30 else None
        config = ended[repeat.of].config if repeat else {"x": rng.randrange(9)}
        more = {"half_width": 0.1, "curve": [figures[1]], "shared": number % 3 == 0}
        ended.append(make_trial(number, *figures, **more, **config, **({"repeat": repeat} if repeat else {})))
    grown, done = held([], goal), set()
    for number in (n for start in range(0, 40, 4) for n in rng.sample(range(start, start + 4), 4)):
        while len(grown.trials) < min(40, 4 * (number // 4 + 1)):
            grown = grown.after(replace(ended[len(grown.trials)], outcome=None))
        grown, done = grown.after(ended[number]), done | {number}
        made = held([t if t.number in done else replace(t, outcome=None) for t in grown.trials], goal)
        assert judgements(grown) == judgements(made)


def test_a_new_trial_of_an_unknown_one_is_left_out_of_a_history(make_trial, held):
    history = held([make_trial(0, 10, 0.2)])
    assert len(history.after(make_trial(1, 10, 0.2, repeat=Repeat(7, 1))).trials) == 1
