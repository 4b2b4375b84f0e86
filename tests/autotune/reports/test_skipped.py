"""The suggestions of a search that were not started."""

import pytest

from autotune.core.rejected_suggestion import RejectedFor, RejectedSuggestion
from autotune.judging.decisions.history import History
from autotune.reports.skipped import skipped

from .searched import trial


@pytest.fixture
def ended(space):
    """Two trials that ran out of memory in 2 and 4 s, one that was stopped after 20 s, one whole one."""
    return [
        trial(space, 0, 10, 0.2, seconds=100.0),
        trial(space, 1, None, None, failure="oom", seconds=2.0, micro_batch_size=64),
        trial(space, 2, None, None, failure="oom", seconds=4.0, micro_batch_size=32),
        trial(space, 3, 8, 0.1, status="stopped", seconds=20.0),
    ]


def config(space, **changes):
    return space.baseline_config | changes


MEMORY, SPEED = RejectedFor.MEMORY, RejectedFor.SPEED


def test_what_was_not_started_is_told_by_kind_of_reason(space, ended):
    passed = [
        RejectedSuggestion(
            config(space, num_workers=0), SPEED, "equal settings read at most 9.1 samples/s; trial 5 has 12.3"
        ),
        RejectedSuggestion(
            config(space, num_workers=4),
            SPEED,
            "equal settings read at most 10.4 samples/s; trial 7 has 12.9",
        ),
        RejectedSuggestion(
            config(space, micro_batch_size=64), MEMORY, "predicted to need 9.1 GiB (8.7 to 9.5) of 6.8 GiB"
        ),
        RejectedSuggestion(
            config(space, micro_batch_size=32), MEMORY, "predicted to need 912 MiB (870 to 950) of 680 MiB"
        ),
        RejectedSuggestion(
            config(space, micro_batch_size=64, num_workers=0),
            MEMORY,
            "predicted to need 7.2 GiB (6.9 to 7.6) of 6.8 GiB",
        ),
    ]
    fits, wins = skipped(passed, History(ended, space))
    assert (fits.reason, fits.count) == ("predicted to need … (… to …) of …", 3)
    assert fits.example == passed[2].reason
    assert fits.saved_s == pytest.approx(3 * 3.0), "what trials took that ran out of memory"
    assert wins.reason == "equal settings read at most … samples/s; trial … has …"
    assert wins.saved_s == pytest.approx(2 * 20.0), "what trials took that were stopped"


def test_the_same_suggestion_saves_time_but_once(space, ended):
    passed = [
        RejectedSuggestion(
            config(space, micro_batch_size=64), MEMORY, "predicted to need 9.1 GiB (8.7 to 9.5) of 6.8 GiB"
        )
    ] * 5
    (found,) = skipped(passed, History(ended, space))
    assert (found.count, found.saved_s) == (5, pytest.approx(3.0))


def test_what_is_outside_the_limits_has_saved_nothing(space, ended):
    outside = config(space, micro_batch_size=64, accumulation_steps=4)
    (found,) = skipped(
        [RejectedSuggestion(outside, RejectedFor.LIMITS, space.violation(outside))], History(ended, space)
    )
    assert (found.reason, found.saved_s) == ("effective batch … is outside […, …]", 0.0)


def test_where_no_trial_was_stopped_all_that_ended_say_how_long_one_takes(space, ended):
    passed = [
        RejectedSuggestion(
            config(space, num_workers=0), SPEED, "is as fast as trial 3, which keeps the quality"
        )
    ]
    (found,) = skipped(passed, History(ended[:3], space))
    assert found.saved_s == pytest.approx(106 / 3)
    assert skipped(passed, History([], space))[0].saved_s == 0.0
    assert skipped([], History(ended, space)) == ()
