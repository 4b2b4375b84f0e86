"""Blind reading: ids that do not reveal the model, and the answers that a sheet saves."""

import json
from pathlib import Path
from typing import Any

import pytest

from r2gen.compared import answers
from r2gen.compared.answers import Answer
from r2gen.errors import InputError


def saved(**changes: Any) -> str:
    marks = {"x": {"mark": "correct", "note": "n"}}
    return json.dumps({"format": 1, "reader": " AB ", "marks": marks, **changes})


def test_an_id_is_of_study_and_text() -> None:
    found = answers.id_of("1", "clear")
    assert found == answers.id_of("1", "clear")
    assert len({found, answers.id_of("2", "clear"), answers.id_of("1", "cleared")}) == 3
    assert answers.id_of("1", "2 clear") != answers.id_of("1 2", "clear")


def test_answers_are_read_as_a_sheet_saves_them(tmp_path: Path) -> None:
    assert answers.read(tmp_path / "nowhere") == {}
    alone = {"x": {"mark": "minor error"}, "y": {"mark": "", "note": "of another patient"}}
    (tmp_path / "answers.json").write_text(saved())
    (tmp_path / "answers-CD.json").write_text(saved(reader="CD", marks=alone))
    assert answers.read(tmp_path) == {
        "AB": {"x": Answer(mark="correct", note="n")},
        "CD": {"x": Answer(mark="minor error"), "y": Answer(note="of another patient")},
    }


def test_a_later_file_of_a_reader_replaces_only_answers_on_the_same_reports(tmp_path: Path) -> None:
    first = {name: {"mark": "correct"} for name in "xy"}
    (tmp_path / "answers-1.json").write_text(saved(marks=first))
    (tmp_path / "answers-2.json").write_text(saved(marks={"x": {"mark": "major error"}}))
    assert answers.read(tmp_path) == {"AB": {"x": Answer(mark="major error"), "y": Answer(mark="correct")}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no JSON", "Invalid JSON"),
        ("[" * 100_000, "Invalid JSON"),
        ("[]", "Input should be an object"),
        (saved(format=2), "format: Input should be 1"),
        (saved(reader=" "), "reader: String should have at least 1 character"),
        (saved(marks=[]), "marks: Input should be an object"),
        (saved(marks={"x": {"mark": "good"}}), "marks.x.mark"),
        (saved(marks={"x": "correct"}), "marks.x: Input should be an object"),
        (saved(marks={"x": {"mark": ["correct"]}}), "marks.x.mark"),
        (saved(marks={"x": {"mark": "correct", "note": 7}}), "marks.x.note: Input should be a valid string"),
    ],
)
def test_a_file_without_answers_is_refused_in_a_line(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "answers.json").write_text(text)
    with pytest.raises(InputError) as refused:
        answers.read(tmp_path)
    assert reason in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path}/answers.json: must be as a sheet saves it: ")
    assert "\n" not in str(refused.value)
