"""How the figures of a report are worded."""

from dataclasses import replace

import pytest

from autotune.core.trial import StoppedFor
from autotune.reports import words


def test_a_peak_has_its_share_and_says_whether_it_still_rose():
    assert words.peak(2**29, 0.5, is_rising=False) == "512 MiB (50%)"
    assert words.peak(2**29, 0.5, is_rising=True) == "at least 512 MiB (50%), still rising"
    assert words.peak(2**29, is_rising=True) == "at least 512 MiB, still rising"
    assert words.peak(None, is_rising=True) == words.NOTHING


def test_what_stopped_a_trial_is_the_same_words_for_all_that_it_stopped(rich):
    """Their reasons differ in their figures alone, so counting those would count nothing."""
    stopped = [row for row in rich.trials if row.status == "stopped"]
    assert {words.why(row) for row in stopped if row.stopped_for == "slow"} == {"another is certainly faster"}
    older = replace(stopped[0], stopped_for=None)
    assert words.why(older) == older.reason


@pytest.mark.parametrize("kind", StoppedFor)
def test_there_are_words_for_whatever_a_trial_is_stopped_for(rich, kind):
    assert words.why(replace(rich.trials[0], stopped_for=kind.value))
