"""What written reports are like beside their references: pure data."""

import pytest

from autotune.compare import texts
from autotune.compare.results import Written
from autotune.compare.texts import Texts


def wrote(report, reference):
    return Written("1", (), reference, report)


def test_overlap_counts_every_word_as_often_as_both_have_it():
    found = texts.of([wrote("the heart is the heart", "the heart is enlarged")])
    assert found == Texts(overlap=pytest.approx(2 * 3 / (5 + 4)), length_ratio=5 / 4, distinct=1.0)


def test_overlap_is_a_mean_over_studies_and_the_length_ratio_of_all_words():
    found = texts.of([wrote("a b c d", "a b c d"), wrote("", "e f"), wrote("a b c d", "x y")])
    assert found == Texts(overlap=pytest.approx(1 / 3), length_ratio=8 / 8, distinct=pytest.approx(2 / 3))


def test_empty_texts_are_alike_and_have_no_length():
    assert texts.of([wrote("", "")]) == Texts(overlap=1.0, length_ratio=None, distinct=1.0)
    assert texts.of([]) is None
