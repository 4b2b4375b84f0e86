"""The figures of the answer: baseline, recommended, and the factor between them."""

from dataclasses import replace

import pytest

from autotune.display import words
from autotune.judging.measurement.estimates import Figure
from autotune.reports import answer


@pytest.fixture
def sooner(rich):
    """Returns a report with a target: the winner needs twice the samples, which halves its gain in speed."""
    found = replace(rich.answer, factor=Figure(rich.answer.speed.value / 2))
    return replace(rich, target=0.15, answer=found)


def line(report, name):
    return next(line for line in answer.lines(report) if line.name == name)


def test_with_a_target_the_gain_is_throughput_times_samples(sooner, rich):
    assert line(sooner, "Throughput").factor.text == words.factor(sooner.answer.speed)
    samples = line(sooner, "Samples")
    assert (samples.over, samples.factor.text) == ("to the target BLEU-4 0.15", words.factor(0.5))
    assert [line.name for line in answer.lines(sooner)][:2] == ["Throughput", "Samples"]
    assert "Samples" not in [line.name for line in answer.lines(rich)]


def test_planned_lengths_of_both_trainings_are_shown(rich):
    baseline, best = replace(rich.answer.baseline, planned=20_000), replace(rich.answer.best, planned=10_000)
    factor = rich.answer.speed.scaled(2.0)
    planned = replace(rich.answer, factor=factor, baseline=baseline, best=best)
    row = line(replace(rich, answer=planned), "Samples")
    assert list(map(str, (row.baseline, row.best, row.factor))) == ["20,000", "10,000", "2.00x of the gain"]


def test_with_prices_the_full_training_has_a_cost_with_its_interval(rich, sooner):
    names = [line.name for line in answer.lines(rich)]
    assert names[-3:] == ["Full training", "Electricity", "Cost"]
    cost = line(rich, "Cost")
    assert cost.over == "of the full training, about; 2.40 EUR per hour, 0.32 EUR per kWh"
    hours = rich.answer.best.cost.hours.value
    assert cost.best.text == words.money("EUR")(2.5 * hours)
    assert cost.best.detail.startswith("± ")
    assert cost.factor.text == line(rich, "Full training").factor.text
    assert line(rich, "Full training").best.detail == f"± {words.duration(0.02 * hours * 3600)}"
    assert "Cost" in [line.name for line in answer.lines(sooner)], "a price was given"


def test_there_is_no_cost_without_prices_and_no_full_training_with_a_target(rich, sooner):
    free = replace(rich, answer=replace(rich.answer, prices=None))
    assert [line.name for line in answer.lines(free)][-2:] == ["Full training", "Electricity"]
    unpriced = replace(sooner, answer=replace(sooner.answer, prices=None))
    assert not {"Full training", "Electricity", "Cost"} & {line.name for line in answer.lines(unpriced)}
    assert "Cost" not in answer.unknown(free)
    unknown = [replace(side, cost=replace(side.cost, money=None)) for _, side in answer.sides(rich)]
    priced = replace(rich, answer=replace(rich.answer, baseline=unknown[0], best=unknown[1]))
    assert answer.unknown(priced) == ["Cost"]


def test_a_negative_quality_has_no_factor(rich):
    baseline = replace(rich.answer.baseline, quality=Figure(-2.4239))
    best = replace(rich.answer.best, quality=Figure(-2.4))
    negative = replace(rich, answer=replace(rich.answer, baseline=baseline, best=best))
    assert line(negative, "BLEU-4").factor.text == words.NOTHING
    assert line(rich, "BLEU-4").factor.text != words.NOTHING
    assert negative.limit == "95% of the baseline's improvement in BLEU-4"
    assert rich.limit == "95% of the baseline's improvement in BLEU-4"
