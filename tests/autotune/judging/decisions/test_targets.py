"""When settings were at the target, of all runs that compute the same."""

from autotune.core.trial import Repeat
from autotune.judging.decisions import objective
from autotune.judging.decisions.history import History
from autotune.space.sections import Objective


def at_target(trials, space, target=0.2):
    goal = Objective(select="same-quality", target=target)
    return History(trials, space.model_copy(update={"objective": goal}))


def test_of_two_that_compute_the_same_the_faster_is_the_sooner_at_the_target(make_trial, space):
    """Which of the two was luckier with its seed says nothing of the other settings."""
    lucky = make_trial(1, 10, curve=[0.3, 0.3], half_width=0.1, num_workers=0)
    fast = make_trial(2, 12, curve=[0.0, 0.1, 0.1, 0.3, 0.3], half_width=0.1, num_workers=2)
    history = at_target([make_trial(0, 5, curve=[0.3, 0.3], micro_batch_size=4), lucky, fast], space)
    of_lucky, of_fast = (objective.samples_to(t, 0.2) for t in (lucky, fast))
    assert of_lucky < of_fast
    assert history.to_target.samples(lucky) == history.to_target.samples(fast) == (of_lucky + of_fast) / 2
    assert [t.number for t in history.ranked] == [2, 1, 0]


def test_a_run_that_never_was_at_the_target_counts_with_all_that_it_had(make_trial, space):
    there = make_trial(1, 10, curve=[0.3, 0.3])
    never = make_trial(2, 10, curve=[0.1, 0.1, 0.1], repeat=Repeat(1, 1))
    history = at_target([make_trial(0, 5, curve=[0.3, 0.3], micro_batch_size=4), there, never], space)

    expected = (objective.samples_to(there, 0.2) + 300) / 2
    assert history.to_target.samples(there) == expected
    assert history.to_target.samples(never) is None
    assert at_target([there], space, target=None).to_target.samples(there) is None


def test_the_seconds_to_the_target_are_at_the_speed_that_equals_have_shown(make_trial, space):
    slow = make_trial(1, 5, curve=[0.1, 0.3, 0.3], half_width=1.0)
    equal = make_trial(2, 15, half_width=1.0)
    history = at_target([slow, equal], space)
    assert objective.seconds_to(slow, 0.2) == 40.0
    assert history.to_target.seconds(slow) == 20.0
