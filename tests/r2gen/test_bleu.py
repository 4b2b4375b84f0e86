"""BLEU from sums over pairs equals pycocoevalcap's up to rounding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2gen import bleu, metrics

texts = st.lists(st.sampled_from("abc."), max_size=9).map(" ".join)
PAIRS = [
    ("the heart is normal .", "the heart is normal ."),
    (
        "the lungs are clear . the lungs are clear .",
        "the lungs are clear . no effusion . the heart is normal .",
    ),
    ("no", "no effusion ."),
    ("", "the heart is normal ."),
]


def found(reports: list[str], true: list[str]) -> float:
    rows = bleu.sums([*map(bleu.count_ngrams, reports)], [*map(bleu.count_ngrams, true)])
    return float(bleu.bleu_4(rows.sum(0)))


@given(st.lists(st.tuples(texts, texts.filter(bool)), min_size=1, max_size=5))
def test_a_corpus_scores_as_in_pycocoevalcap(pairs: list[tuple[str, str]]) -> None:
    """Covers empty reports, repeated n-grams, short texts, and texts longer than their references."""
    reports, true = (list(each) for each in zip(*pairs, strict=True))
    assert found(reports, true) == pytest.approx(metrics.score(reports, true)["bleu_4"], abs=1e-12)


def test_a_row_is_the_contribution_of_a_pair() -> None:
    """Counted by hand: `a` occurs three times and twice, so two match; so does one `a a`."""
    report, reference = bleu.count_ngrams("a a a b"), bleu.count_ngrams("a a c")
    assert bleu.sums([report], [reference]).tolist() == [[2, 1, 0, 0, 4, 3, 2, 1, 4, 3]]


def test_many_corpora_are_scored_at_once() -> None:
    rows = bleu.sums(*([bleu.count_ngrams(text) for text in each] for each in zip(*PAIRS, strict=True)))
    alone = [metrics.score([report], [true])["bleu_4"] for report, true in PAIRS]
    assert bleu.bleu_4(rows) == pytest.approx(np.array(alone), abs=1e-12)
