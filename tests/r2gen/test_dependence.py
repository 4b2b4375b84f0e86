"""Reports that do not depend on the study are recognised, whatever their scores."""

import random

import pytest

from r2gen import metrics
from r2gen.dependence import dependence

from .drawn_reports import REPORTS

TRUE = random.Random(7).choices(REPORTS, k=40)


def shuffled(seed: int) -> list[str]:
    return random.Random(seed).sample(TRUE, len(TRUE))


def test_perfect_reports_depend_on_the_study() -> None:
    found = dependence(TRUE, TRUE)
    assert found["collapsed"] is False
    assert found["distinct_reports"] == found["distinct_references"] == len(set(TRUE)) / 40
    assert found["bleu_4_shuffled"] < 0.7


def test_one_report_for_all_is_a_collapse() -> None:
    found = dependence([TRUE[0]] * 40, TRUE)
    assert found["collapsed"] is True
    assert found["distinct_reports"] == 1 / 40
    assert found["bleu_4_shuffled"] == pytest.approx(metrics.score([TRUE[0]] * 40, TRUE)["bleu_4"])


def test_different_reports_of_other_studies_are_a_collapse_in_about_19_of_20_cases() -> None:
    collapsed = [dependence(shuffled(seed), TRUE)["collapsed"] for seed in range(40)]
    assert sum(collapsed) >= 34


def test_a_few_reports_for_many_studies_are_a_collapse_even_if_they_fit() -> None:
    """Two reports, by one finding, for twenty-odd different references: better than a random assignment."""
    healthy, ill = REPORTS[0], REPORTS[-1]
    two = [ill if "enlarged" in text else healthy for text in TRUE]
    found = dependence(two, TRUE)
    true = metrics.score(two, TRUE)["bleu_4"]
    assert true > found["bleu_4_shuffled"]
    assert found["collapsed"] is True


def test_the_shuffles_are_the_same_every_time() -> None:
    assert dependence(shuffled(1), TRUE) == dependence(shuffled(1), TRUE)


@pytest.mark.parametrize("studies", [1, 2, 7])
def test_items_are_the_jackknifes_pseudo_values(studies: int) -> None:
    """Leaves out each study in turn and scores the rest again."""
    reports, references = shuffled(3)[:studies], TRUE[:studies]
    whole = metrics.score(reports, references)["bleu_4"]
    items = dependence(reports, references)["bleu_4_items"]
    assert len(items) == studies
    for i, item in enumerate(items):
        rest = (reports[:i] + reports[i + 1 :], references[:i] + references[i + 1 :])
        without = metrics.score(*rest)["bleu_4"] if studies > 1 else 0.0
        assert item == pytest.approx(studies * whole - (studies - 1) * without, abs=1e-6)


def test_the_mean_of_the_items_is_about_the_corpus_score() -> None:
    reports = [a if i % 3 else b for i, (a, b) in enumerate(zip(TRUE, shuffled(5), strict=True))]
    found = dependence(reports, TRUE)
    assert sum(found["bleu_4_items"]) / 40 == pytest.approx(metrics.score(reports, TRUE)["bleu_4"], abs=0.01)
