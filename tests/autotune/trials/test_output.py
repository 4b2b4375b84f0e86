"""Output is logged completely, except for secrets; an endless log keeps its head and its tail."""

import multiprocessing
import os
from pathlib import Path

import pytest

from autotune.trials import output as outputs
from autotune.trials.output import OutputLog

SECRET = "made-up-key-0123456789"


@pytest.fixture
def printed(tmp_path: Path):
    """Yields the writing end, the output, and the log's path; `close` it at the end."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    output = OutputLog(reader, tmp_path / "log", lambda text: text.replace(SECRET, "(hidden)"))
    yield writer, output, tmp_path / "log"
    output.close()
    writer.close()


def say(writer, text: bytes) -> None:
    with open(writer.fileno(), "wb", buffering=0, closefd=False) as stream:
        stream.write(text)


def test_a_secret_that_comes_in_parts_is_hidden(printed) -> None:
    writer, output, log = printed
    for part in (b"one\ntoken ", SECRET[:9].encode(), SECRET[9:].encode(), b" two\nthree"):
        say(writer, part)
        output.take()
    assert log.read_text() == "one\ntoken (hidden) two\n"
    output.finish()
    assert log.read_text() == "one\ntoken (hidden) two\nthree"


def test_bytes_that_are_not_text_are_unchanged(printed) -> None:
    writer, output, log = printed
    say(writer, b"\xff\xfe 50%\r" + b"x" * 2**17 + b"\n")
    output.finish()
    assert log.read_bytes() == b"\xff\xfe 50%\r" + b"x" * 2**17 + b"\n"


def test_a_long_incomplete_line_is_written_except_for_part_of_a_secret(printed) -> None:
    writer, output, log = printed
    say(writer, b"word " * 2**14 + SECRET[:9].encode())
    output.take()
    assert log.read_bytes() == b"word " * 2**14
    say(writer, SECRET[9:].encode())
    output.finish()
    assert log.read_text().endswith("word (hidden)")


def test_it_appends_to_the_log_and_notices_the_last_writers_end(printed) -> None:
    writer, output, log = printed
    log.write_text("before\n")
    say(writer, b"after")
    assert not output.ended
    writer.close()
    output.take()
    assert output.ended
    output.close()
    assert log.read_text() == "before\nafter"
    output.close()


def test_a_short_log_is_unchanged(tmp_path):
    log = tmp_path / "log"
    outputs.bound(log)
    assert not log.exists()
    log.write_bytes(b"x" * outputs.MOST_BYTES)
    outputs.bound(log)
    assert log.stat().st_size == outputs.MOST_BYTES


def test_a_long_log_keeps_both_ends_and_its_writer_continues(tmp_path):
    log = tmp_path / "log"
    writer = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(writer, b"how it began\n")
    os.ftruncate(writer, 2**30)  # a gigabyte that takes no room on the disk
    os.write(writer, b"how it ended\n")
    outputs.bound(log)
    os.write(writer, b"and went on\n")
    os.close(writer)
    kept = log.read_bytes()
    assert len(kept) < outputs.MOST_BYTES
    assert kept.startswith(b"how it began\n")
    assert kept.endswith(b"how it ended\nand went on\n")
    assert b"[... 1056964621 bytes left out ...]" in kept
