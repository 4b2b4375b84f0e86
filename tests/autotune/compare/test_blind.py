"""Blind reading: ids that tell no model, answers read back, and whose they are."""

import json
from pathlib import Path

import pytest

from autotune.compare import blind
from autotune.compare.blind import Answer, Unblinded
from autotune.compare.results import Written
from autotune.core.errors import InputError

KEY, SOURCE = bytes(32), Path("answers.json")


def wrote(study, report):
    return Written(study, (), "as it is", report)


WRITTEN = {
    "baseline": [wrote("1", "the heart is normal"), wrote("2", "clear")],
    "bf16": [wrote("1", "the heart is large"), wrote("2", "clear")],
}


def test_an_id_is_of_study_and_text_and_needs_the_key():
    found = blind.id_of(KEY, "1", "clear")
    assert found == blind.id_of(KEY, "1", "clear")
    assert len({found, blind.id_of(KEY, "2", "clear"), blind.id_of(KEY, "1", "cleared")}) == 3
    assert blind.id_of(bytes([1, *KEY[1:]]), "1", "clear") != found
    assert blind.id_of(KEY, "1", "2 clear") != blind.id_of(KEY, "1 2", "clear")


def test_what_two_models_wrote_alike_is_one_report_of_both():
    found = blind.wrote(KEY, WRITTEN)
    assert found[blind.id_of(KEY, "2", "clear")] == ("2", ("baseline", "bf16"))
    assert len(found) == 3


def test_answers_are_unblinded_and_those_on_texts_that_are_gone_do_not_count():
    ids = [blind.id_of(KEY, "1", "the heart is large"), blind.id_of(KEY, "2", "clear")]
    readings = {"AB": {ids[0]: Answer("correct", "well"), "gone": Answer("minor error")}, "CD": {}}
    readings["CD"][ids[1]] = Answer("major error")
    assert blind.unblinded(readings, KEY, WRITTEN) == [
        Unblinded("AB", "1", ("bf16",), Answer("correct", "well")),
        Unblinded("CD", "2", ("baseline", "bf16"), Answer("major error")),
    ]


def test_a_reader_who_answers_again_replaces_only_the_own_answers_on_the_same_reports(tmp_path):
    file = tmp_path / "marks.json"
    assert blind.known(file) == {}
    assert blind.keep(file, "AB", {"x": Answer("correct"), "y": Answer("correct")}) == {}
    assert blind.keep(file, "CD", {"x": Answer("minor error", "note")}) == {}
    before = blind.keep(file, "AB", {"x": Answer("major error", "note"), "z": Answer("correct")})
    assert before == {"x": Answer("correct"), "y": Answer("correct")}
    assert blind.known(file) == {
        "AB": {"x": Answer("major error", "note"), "y": Answer("correct"), "z": Answer("correct")},
        "CD": {"x": Answer("minor error", "note")},
    }


@pytest.mark.parametrize("text", ['{"AB": {"x": "correct"}}', '{"AB": {},}', "[]", "[" * 100_000])
def test_answers_that_cannot_be_read_are_not_written_over(tmp_path, text):
    file = tmp_path / "marks.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"marks.json: the marks of blind readers cannot be read: "):
        blind.keep(file, "AB", {"x": Answer("correct")})
    assert file.read_text() == text


def test_a_key_is_drawn_once_and_read_from_then_on(tmp_path):
    file = tmp_path / "blind.json"
    with pytest.raises(InputError, match="no sheet for blind readers was made"):
        blind.key(file)
    drawn = blind.make_key(file)
    assert len(drawn) == 32
    assert blind.make_key(file) == blind.key(file) == drawn
    assert blind.make_key(tmp_path / "other.json") != drawn
    file.write_text('{"key": 7}')
    with pytest.raises(InputError, match="is not the key of a sheet"):
        blind.key(file)


def told(**changes):
    return json.dumps(
        {"format": 1, "reader": " AB ", "marks": {"x": {"mark": "correct", "note": "n"}}, **changes}
    )


def test_answers_are_read_as_a_sheet_saves_them():
    assert blind.parse(told(), SOURCE) == ("AB", {"x": Answer("correct", "n")})
    assert blind.parse(told(marks={"x": {"mark": "minor error"}}), SOURCE)[1]["x"].note == ""
    note_alone = {"x": {"mark": "", "note": "of another patient"}}
    assert blind.parse(told(marks=note_alone), SOURCE)[1] == {"x": Answer("", "of another patient")}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no JSON", "answers.json: must be JSON, as a blind sheet saves it"),
        ("[" * 100_000, "must be JSON"),
        ("[]", "must be the answers of a blind sheet, format 1"),
        (told(format=2), "must be the answers of a blind sheet, format 1"),
        (told(reader=" "), "must have a reader, who has a name, and marks by report"),
        (told(marks=[]), "must have a reader, who has a name, and marks by report"),
        (
            told(marks={"x": {"mark": "good"}}),
            "marks: 'x': one of correct, minor error, major error, or a note, or both: got",
        ),
        (told(marks={"x": {"mark": ""}}), "marks: 'x': one of correct"),
        (told(marks={"x": "correct"}), "marks: 'x': one of correct"),
        (told(marks={"x": {"mark": ["correct"]}}), "marks: 'x': one of correct"),
        (told(marks={"x": {"mark": "correct", "note": 7}}), "marks: 'x': one of correct"),
    ],
)
def test_what_is_no_answers_is_refused_in_a_line(text, reason):
    with pytest.raises(InputError) as refused:
        blind.parse(text, SOURCE)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
