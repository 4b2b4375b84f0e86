"""The figures of the answer: baseline, recommended, and the factor between them."""

from dataclasses import replace

import pytest

from autotune.judging.estimates import Figure
from autotune.reports import answer, words


@pytest.fixture
def sooner(rich):
    """A report whose gain is a matter of the time to a target: half of its speed goes into more samples."""
    found = replace(rich.answer, factor=Figure(rich.answer.speed.value / 2))
    return replace(rich, target=0.15, answer=found)


def line(report, name):
    return next(line for line in answer.lines(report) if line.name == name)


def test_to_a_target_the_gain_is_the_factor_of_the_throughput_times_that_of_the_samples(sooner, rich):
    assert line(sooner, "Throughput").factor.text == words.times(sooner.answer.speed)
    samples = line(sooner, "Samples")
    assert (samples.over, samples.factor.text) == ("to the target BLEU-4 0.15", words.factor(0.5))
    assert [line.name for line in answer.lines(sooner)][:2] == ["Throughput", "Samples"]
    assert "Samples" not in [line.name for line in answer.lines(rich)]


def test_of_a_negative_quality_no_factor_is_told(rich):
    sides = [
        replace(side, quality=Figure(value))
        for side, value in ((rich.answer.baseline, -2.4239), (rich.answer.best, -2.4))
    ]
    negative = replace(rich, answer=replace(rich.answer, baseline=sides[0], best=sides[1]))
    assert line(negative, "BLEU-4").factor.text == words.NOTHING
    assert line(rich, "BLEU-4").factor.text != words.NOTHING
    assert words.limit(negative) == "5% below the baseline's BLEU-4"
    assert words.limit(rich) == "95% of the baseline's BLEU-4"
