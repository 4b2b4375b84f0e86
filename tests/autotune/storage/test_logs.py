"""A log that grows without end keeps its head and its tail, and its writer continues."""

import os

from autotune.storage import logs


def test_a_short_log_is_unchanged(tmp_path):
    log = tmp_path / "log"
    logs.bound(log)
    assert not log.exists()
    log.write_bytes(b"x" * logs.MOST_BYTES)
    logs.bound(log)
    assert log.stat().st_size == logs.MOST_BYTES


def test_a_long_log_keeps_both_ends_and_its_writer_continues(tmp_path):
    log = tmp_path / "log"
    writer = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(writer, b"how it began\n")
    os.ftruncate(writer, 2**30)  # a gigabyte that takes no room on the disk
    os.write(writer, b"how it ended\n")
    logs.bound(log)
    os.write(writer, b"and went on\n")
    os.close(writer)
    kept = log.read_bytes()
    assert len(kept) < logs.MOST_BYTES
    assert kept.startswith(b"how it began\n")
    assert kept.endswith(b"how it ended\nand went on\n")
    assert b"[... 1056964621 bytes left out ...]" in kept
