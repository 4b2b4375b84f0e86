"""What a script changes in a view stays in the view, whoever writes it, and behind linked directories too."""

import pytest

MINE = "the user's"


@pytest.fixture
def view(tmp_path):
    """A view with a link to each file and directory of the user."""
    mine, view = tmp_path / "mine", tmp_path / "view"
    for file in ("model.pt", "checkpoints/old.pt", "checkpoints/kept.pt", "runs/1/log", "runs/2/log"):
        (mine / file).parent.mkdir(parents=True, exist_ok=True)
        (mine / file).write_text(MINE)
    view.mkdir()
    for entry in mine.iterdir():
        (view / entry.name).symlink_to(entry)
    yield view
    files = [file for file in mine.rglob("*") if file.is_file()]
    assert sorted(str(file.relative_to(mine)) for file in files) == [
        *("checkpoints/kept.pt", "checkpoints/old.pt", "model.pt", "runs/1/log", "runs/2/log")
    ]
    assert {file.read_text() for file in files} == {MINE}


def test_a_native_writer_does_not_write_behind_a_link(hear, view):
    assert hear("saved", AUTOTUNE_VIEW=str(view)).said > 10


def test_nothing_changes_behind_a_linked_directory(hear, view):
    said = hear("changes", AUTOTUNE_VIEW=str(view)).said
    assert said == [["kept.pt", "last.pt", "more", "old+.pt"], MINE + "more", ["2"]]
