"""What blind readers have said: counts, shares and notes. Pure data."""

import random

import pytest

from autotune.compare.blind import Answer, Unblinded
from autotune.reports import reading, tables, words
from autotune.reports.reading import Remark


def said(study, mark, *labels, reader="AB", note=""):
    return Unblinded(reader, str(study), labels, Answer(mark, note))


def test_marks_are_counted_by_model_in_the_order_of_the_models():
    found = reading.reading(
        [
            said(1, "correct", "bf16"),
            said(1, "major error", "baseline"),
            said(2, "minor error", "bf16", "baseline", note="no tube"),
            said(3, "correct", "bf16"),
        ],
        ["baseline", "fp32", "bf16"],
    )
    assert [(m.label, m.reports, m.correct_marks, m.minor_errors, m.major_errors) for m in found.models] == [
        ("baseline", 2, 0, 1, 1),
        ("bf16", 3, 2, 1, 0),
    ]
    bf16 = found.models[1]
    assert (bf16.correct.value, bf16.harmless.value) == (pytest.approx(2 / 3), 1.0)
    assert found.remarks == (
        Remark("baseline", "2", "AB", "minor error", "no tube"),
        Remark("bf16", "2", "AB", "minor error", "no tube"),
    )
    assert tables.reading(found).rows[1][:5] == ("bf16", "3", "2", "1", "0")


def test_two_readers_of_a_report_are_one_report():
    once = [said(n, "correct" if n % 2 else "major error", "bf16") for n in range(20)]
    again = [said(n, "correct" if n % 2 else "major error", "bf16", reader="CD") for n in range(20)]
    one, both = (reading.reading(found, ["bf16"]) for found in (once, once + again))
    assert (both.readers, both.models[0].reports, both.models[0].correct_marks) == (("AB", "CD"), 20, 20)
    assert both.models[0].correct == one.models[0].correct, "no surer for a second look at the same reports"


def test_a_note_without_a_mark_is_a_remark_alone():
    found = reading.reading([said(1, "", "bf16", note="no image"), said(2, "correct", "bf16")], ["bf16"])
    assert (found.models[0].reports, found.models[0].correct.value) == (1, 1.0)
    assert found.remarks == (Remark("bf16", "1", "AB", "", "no image"),)
    assert tables.remarks(found).rows == (("bf16", "1", "AB", words.NOTHING, "no image"),)
    assert reading.reading([said(1, "", "bf16", note="no image")], ["bf16"]).models == ()


def test_nothing_said_is_no_reading():
    assert reading.reading([], ["bf16"]) is None


def test_an_interval_is_never_empty_and_never_beyond_all_or_nothing():
    assert reading.share([1.0] * 10).low == pytest.approx(0.722, abs=1e-3)  # 10 / (10 + 1.96^2)
    assert reading.share([1.0] * 10).high == 1.0
    assert (reading.share([0.0]).low, round(reading.share([0.0]).high, 2)) == (0.0, 0.79)


@pytest.mark.parametrize("truth", [0.5, 0.8, 0.95])
def test_intervals_cover_the_truth_about_as_often_as_they_say(truth):
    rng = random.Random(7)
    drawn = [reading.share([float(rng.random() < truth) for _ in range(40)]) for _ in range(1000)]
    assert sum(f.low <= truth <= f.high for f in drawn) > 920
