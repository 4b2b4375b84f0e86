"""How the figures of a report are worded."""

from autotune.reports import words


def test_a_peak_has_its_share_and_says_whether_it_still_rose():
    assert words.peak(2**29, 0.5, is_rising=False) == "512 MiB (50%)"
    assert words.peak(2**29, 0.5, is_rising=True) == "at least 512 MiB (50%), still rising"
    assert words.peak(2**29, is_rising=True) == "at least 512 MiB, still rising"
    assert words.peak(None, is_rising=True) == words.NOTHING
