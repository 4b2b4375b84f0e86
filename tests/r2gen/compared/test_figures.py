"""The figures of generated reports against their references: pure data."""

from collections import Counter

import pytest

from r2gen.compared import figures
from r2gen.compared.table import NOTHING

from .written import entry


def test_findings_are_agreed_missed_or_invented() -> None:
    entries = [
        entry(1, found=("cardiomegaly", "effusion"), true=("cardiomegaly",)),
        entry(2, found=("cardiomegaly",), true=("cardiomegaly", "edema")),
        entry(3),
    ]
    agreed, missed, invented = figures.counts(entries)
    assert (agreed, missed, invented) == ({"cardiomegaly": 2}, {"edema": 1}, {"effusion": 1})
    found = figures.findings({"baseline": entries, "bf16": [entry(1, true=("cardiomegaly",))]})
    assert found.head == ("agreed / missed / invented", "baseline", "bf16")
    assert found.rows == (
        ("cardiomegaly", "2 / 0 / 0", "0 / 1 / 0"),
        ("edema", "0 / 1 / 0", "0 / 0 / 0"),
        ("effusion", "0 / 0 / 1", "0 / 0 / 0"),
    )
    assert figures.findings({"baseline": [entry(1)]}).rows == ()


def test_precision_and_recall_are_those_of_all_findings_together() -> None:
    entries = [entry(1, found=("a", "b", "c", "d"), true=("a", "e"))]
    assert figures.figures({"bf16": entries}).rows[0][:4] == ("bf16", "25%", "50%", "33%")


def test_reports_without_findings_have_no_precision() -> None:
    found = figures.figures({"silent": [entry(1, true=("a",))], "healthy": [entry(1)]})
    assert found.rows[0][1:4] == (NOTHING, "0%", "0%")
    assert found.rows[1][1:4] == (NOTHING, NOTHING, NOTHING)


def test_overlap_counts_every_word_as_often_as_both_have_it() -> None:
    one, other = (Counter(text.split()) for text in ("the heart is the heart", "the heart is enlarged"))
    assert figures.overlap(one, other) == pytest.approx(2 * 3 / (5 + 4))


def test_overlap_is_a_mean_over_studies_and_the_length_ratio_of_all_words() -> None:
    texts = (("a b c d", "a b c d"), ("", "e f"), ("a b c d", "x y"))
    entries = [entry(n, *both) for n, both in enumerate(texts)]
    assert figures.figures({"bf16": entries}).rows[0][4:] == ("0.3333", "1.0000", "67%")


def test_empty_texts_are_alike_and_have_no_length() -> None:
    assert figures.figures({"bf16": [entry(1, "", "")]}).rows[0][4:] == ("1.0000", NOTHING, "100%")
