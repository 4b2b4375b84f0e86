"""The best constant report is the one that pycocoevalcap scores highest, and is computed once."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2gen import cache, chance, metrics
from r2gen.chance import best_constant

from .drawn_reports import REPORTS

texts = st.lists(st.sampled_from("abc."), max_size=9).map(" ".join)


def bleu_4(constant: str, references: list[str]) -> float:
    return metrics.score([constant] * len(references), references)["bleu_4"]


@given(st.lists(texts, min_size=1, max_size=6), st.lists(texts.filter(bool), min_size=1, max_size=5))
def test_no_other_candidate_scores_higher(candidates: list[str], references: list[str]) -> None:
    scores = {text: bleu_4(text, references) for text in candidates}
    assert scores[best_constant(candidates, references)] == pytest.approx(max(scores.values()), abs=1e-12)


def test_it_is_found_among_the_reports_of_all_findings() -> None:
    """Compares every candidate's pycocoevalcap score, on drawn reports."""
    references = REPORTS[::5]
    scores = [bleu_4(text, references) for text in REPORTS]
    assert best_constant(REPORTS, references) == REPORTS[scores.index(max(scores))]


def test_a_candidate_that_is_too_short_pays_the_brevity_penalty() -> None:
    references = ["a b c d e f g h", "a b c d e f g x"]
    assert best_constant(["a b c d", "a b c d e f g y"], references) == "a b c d e f g y"


def test_without_candidates_or_references_there_is_none() -> None:
    with pytest.raises(ValueError, match="needs candidates"):
        best_constant([], ["a"])
    with pytest.raises(ValueError, match="needs candidates"):
        best_constant(["a"], [])


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache.directory()


CANDIDATES, REFERENCES = ["no effusion .", "the heart is normal ."], ["the heart is normal ."] * 2


def test_it_has_all_scores_of_that_report(own_cache: Path) -> None:
    found = chance.chance(CANDIDATES, REFERENCES)
    assert found == metrics.score(REFERENCES, REFERENCES)
    assert [file.suffix for file in own_cache.iterdir()] == [".json"]


def test_it_is_computed_once_for_the_same_texts(own_cache: Path) -> None:
    first = chance.chance(CANDIDATES, REFERENCES)
    (file,) = own_cache.iterdir()
    file.write_text(json.dumps({**first, "bleu_4": 0.5}))
    assert chance.chance(CANDIDATES, REFERENCES)["bleu_4"] == 0.5
    chance.chance(CANDIDATES[:1], REFERENCES)
    chance.chance(CANDIDATES, REFERENCES[:1])
    chance.chance([*CANDIDATES, REFERENCES[0]], REFERENCES[1:])  # the same texts, split differently
    assert len(list(own_cache.iterdir())) == 4


@pytest.mark.parametrize("spoilt", ["", "[]", '{"bleu_4": null}', "\x00"])
def test_a_corrupt_file_is_recomputed(own_cache: Path, spoilt: str) -> None:
    first = chance.chance(CANDIDATES, REFERENCES)
    (file,) = own_cache.iterdir()
    file.write_text(spoilt)
    assert chance.chance(CANDIDATES, REFERENCES) == first
    assert file.read_text() != spoilt


def test_a_cache_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert chance.chance(CANDIDATES, REFERENCES)["bleu_4"] == pytest.approx(1)
    assert capfd.readouterr() == ("", "")
