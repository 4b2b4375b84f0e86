"""A session as a table and as figures."""

import pytest

from autotune.core.trial import Repeat
from autotune.judging.decisions.history import History
from autotune.trackers import overview


def test_a_row_has_configuration_and_result(space, make_trial):
    trials = [
        make_trial(0, 10.0, 0.2, peak=60, limit=80),
        make_trial(1, repeat=Repeat(0, 1)),
        make_trial(2, failure="oom", ablation_of=1),
    ]
    table = overview.table(trials, History(trials, space))
    assert table["trial"] == [0, 1, 2]
    assert table["repeat_of"] == [None, 0, None]
    assert table["ablation_of"] == [None, None, 1]
    assert table["precision"] == ["fp32"] * 3
    assert table["bleu_4"] == [0.2, None, None]
    assert table["memory_share"] == [0.75, None, None]
    assert table["outcome"] == ["completed", "completed", "failed (oom)"]
    assert table["reason"] == ["", "", "as made"]
    assert overview.table([], History([], space))["trial"] == []


def test_a_row_names_the_constraint_that_a_completed_trial_violates(space, make_trial):
    asked = space.model_copy(
        update={"objective": space.objective.model_copy(update={"constraints": {"rouge_l": ">= 0.2"}})}
    )
    trials = [make_trial(n, 10.0, 0.2, scores={"rouge_l": found}) for n, found in enumerate((0.3, 0.1))]
    table = overview.table(trials, History(trials, asked))
    assert table["reason"] == ["", "rouge_l is 0.1, and must be >= 0.2"]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((2, 0.5, None), [2, 0.5, None]),
        ((True, None), [True, None]),
        ((True, 2, "all"), ["True", "2", "all"]),
        ((None, "auto"), [None, "auto"]),
    ],
)
def test_a_column_has_values_of_one_type(space, make_trial, values, shown):
    trials = [make_trial(n, num_workers=value) for n, value in enumerate(values)]
    assert overview.table(trials, History(trials, space))["num_workers"] == shown


def test_without_a_baseline_there_are_only_counts_of_outcomes(space, make_trial):
    assert overview.figures(History([make_trial(0, failure="error")], space)) == {
        "outcomes": "1 trial: 1 failed otherwise"
    }


def test_a_baseline_that_is_the_best_has_no_gain(space, make_trial):
    trials = [make_trial(0, 10.0, 0.2, half_width=1.0), make_trial(1, 5.0, 0.2, half_width=1.0)]
    figures = overview.figures(History(trials, space))
    assert (figures["winner/trial"], figures["gain/factor"], figures["gain/low"]) == (0, 1.0, None)


def test_a_confirmed_gain_is_that_of_the_race_and_its_quality_that_of_the_seeds(
    space, make_trial, confirming
):
    trials = [make_trial(0, 10.0, 0.2), make_trial(1, 40.0, 0.25, micro_batch_size=32)]
    trials += confirming(trials, 1, 3.02, curve=[0.2, 0.21])
    figures = overview.figures(History(trials, space))
    assert figures["gain/is_confirmed"]
    assert figures["gain/factor"] == pytest.approx(3.02, abs=0.01)
    assert figures["gain/low"] < figures["gain/factor"] < figures["gain/high"]
    assert figures["winner/bleu_4"] == pytest.approx(0.21)
