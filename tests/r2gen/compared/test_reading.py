"""The tables of blind readers' answers: counts, shares and notes. Pure data."""

import random
from collections.abc import Mapping

import pytest

from r2gen.compared import reading
from r2gen.compared.answers import Answer, id_of
from r2gen.compared.entries import Entry
from r2gen.compared.table import NOTHING

from .written import entry

MODELS = {
    "baseline": [entry(1, "normal"), entry(2, "clear")],
    "fp32": [entry(1, "small"), entry(2, "small")],
    "bf16": [entry(1, "large"), entry(2, "clear"), entry(3, "tube")],
}


def on(study: int, report: str, mark: str, note: str = "") -> dict[str, Answer]:
    return {id_of(str(study), report): Answer.model_validate({"mark": mark, "note": note})}


def test_marks_are_counted_by_model_in_the_order_of_the_models() -> None:
    readers = {
        "AB": {
            **on(1, "large", "correct"),
            **on(1, "normal", "major error"),
            **on(2, "clear", "minor error", "no tube"),
            **on(3, "tube", "correct"),
        }
    }
    found = reading.marks(readers, MODELS)
    assert found.rows == (
        ("baseline", "2", "0", "1", "1", "0% (0% to 66%)", "50% (9% to 91%)"),
        ("bf16", "3", "2", "1", "0", "67% (21% to 94%)", "100% (44% to 100%)"),
    ), "what two models wrote alike counts for both"
    assert reading.notes(readers, MODELS).rows == (
        ("baseline", "2", "AB", "minor error", "no tube"),
        ("bf16", "2", "AB", "minor error", "no tube"),
    )
    assert "by: AB. " in found.note
    assert "do not count" not in found.note


def test_answers_on_missing_texts_are_reported_and_not_counted() -> None:
    found = reading.marks({"AB": {**on(1, "large", "correct"), **on(1, "gone", "major error")}}, MODELS)
    assert [row[:3] for row in found.rows] == [("bf16", "1", "1")]
    assert found.note.endswith("Answers on texts that no model has written do not count: 1.")


def test_two_readers_of_a_report_are_one_report() -> None:
    models: Mapping[str, list[Entry]] = {"bf16": [entry(n, "clear") for n in range(20)]}
    said = {}
    for n in range(20):
        said.update(on(n, "clear", "correct" if n % 2 else "major error"))
    one, both = (reading.marks(dict.fromkeys(names, said), models).rows[0] for names in ("A", "AC"))
    assert (one[:3], both[:3]) == (("bf16", "20", "10"), ("bf16", "20", "20"))
    assert both[5:] == one[5:], "no surer for a second look at the same reports"


def test_a_note_without_a_mark_is_a_remark_alone() -> None:
    readers = {"AB": {**on(1, "large", "", "no image"), **on(3, "tube", "correct")}}
    assert reading.marks(readers, MODELS).rows[0][:3] == ("bf16", "1", "1")
    assert reading.notes(readers, MODELS).rows == (("bf16", "1", "AB", NOTHING, "no image"),)
    assert reading.marks({"AB": on(1, "large", "", "no image")}, MODELS).rows == ()


def test_an_interval_is_never_empty_and_never_beyond_all_or_nothing() -> None:
    _, low, high = reading.share([1.0] * 10)
    assert (low, high) == (pytest.approx(0.722, abs=1e-3), 1.0)  # 10 / (10 + 1.96^2)
    _, low, high = reading.share([0.0])
    assert (low, round(high, 2)) == (0.0, 0.79)


@pytest.mark.parametrize("truth", [0.5, 0.8, 0.95])
def test_intervals_cover_the_truth_about_as_often_as_they_say(truth: float) -> None:
    rng = random.Random(7)
    drawn = [reading.share([float(rng.random() < truth) for _ in range(40)]) for _ in range(1000)]
    assert sum(low <= truth <= high for _, low, high in drawn) > 920
