"""Writing into files that are not regular, and in place of them."""

import os
import select
from concurrent.futures import ThreadPoolExecutor

import pytest

from autotune.core import files
from autotune.core.errors import InputError


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.mark.timeout(30)
def test_a_pipe_without_a_reader_is_not_waited_for(pipe):
    with pytest.raises(InputError, match="pipe: cannot be written"):
        files.write(pipe, "text")


def test_a_pipe_with_a_reader_gets_the_whole_text(pipe):
    text = "x" * 300_000  # more than a pipe holds
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    with ThreadPoolExecutor(1) as pool, os.fdopen(reader) as stream:
        done = pool.submit(files.write, pipe, text)
        select.select([stream], [], [])  # until the writer has opened it
        assert stream.read() == text
        done.result()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["report.html", "report.html.tmp"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda place: place.symlink_to("other")])
def test_a_link_or_a_pipe_in_a_sessions_directory_is_replaced_and_not_followed(tmp_path, name, make):
    (tmp_path / "other").write_text("the user's")
    make(tmp_path / name)
    files.write(tmp_path / "report.html", "text", is_ours=True)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        "other": "the user's",
        "report.html": "text",
    }
    assert not (tmp_path / "report.html").is_symlink()


def test_a_link_that_the_user_names_is_followed(tmp_path):
    (tmp_path / "link").symlink_to("other")
    files.write(tmp_path / "link", "text")
    assert (tmp_path / "other").read_text() == "text"
