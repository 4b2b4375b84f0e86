"""The text forms of figures."""

import math

import pytest

from autotune.display import words
from autotune.judging.measurement.estimates import Figure


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (words.rate(Figure(1234.56, 1230.0, 1240.0)), "1,235 ± 5"),
        (words.rate(Figure(0.1234, 0.1, 0.2)), "0.123 ± 0.050"),
        (words.rate(Figure(61.2, None, 61.9)), "61.2"),
        (words.score(0.16234), "0.1623"),
        (words.factor(Figure(2.9, 2.71, 3.1)), "2.90x"),
        (words.factor.interval(Figure(2.9, 2.71, 3.1)), "2.71x to 3.10x"),
        (words.factor.interval(Figure(2.9)), ""),
        (words.share(0.314), "31%"),
        (words.milliseconds(0.0123456), "12.3"),
        (words.money("EUR")(Figure(12.4, 12.2, 12.6)), "12.40 EUR ± 0.20 EUR"),
        (words.money("")(0.1234), "0.123"),
        (words.memory(2**29), "512 MiB"),
        (words.duration(Figure(185.0, 180.0, 190.0)), "3m 05s ± 5s"),
        (words.duration(0.25), "250 ms"),
        (words.score(None), words.NOTHING),
        (words.rate(Figure(math.nan)), words.NOTHING),
    ],
)
def test_a_figure_is_written_in_the_form_of_its_kind(text, expected):
    assert text == expected


def test_a_peak_shows_its_share_and_if_it_still_rose():
    assert words.peak(2**29, 0.5, is_rising=False) == "512 MiB (50%)"
    assert words.peak(2**29, 0.5, is_rising=True) == "at least 512 MiB (50%), still rising"
    assert words.peak(2**29, is_rising=True) == "at least 512 MiB, still rising"
    assert words.peak(None, is_rising=True) == words.narrow_peak(None, is_rising=True) == words.NOTHING
    assert words.narrow_peak(2**29, is_rising=True) == ">512 MiB"
    assert words.narrow_peak(2**29, is_rising=False) == "512 MiB"
