"""Writing into files that are not regular."""

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
