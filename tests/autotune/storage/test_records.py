"""A trial's records in its directory."""

import tracemalloc

import pytest

from autotune.storage import records


def test_the_seconds_of_earlier_attempts_count_each_by_its_own_clock():
    first = [{"attempt": 1.0, "clock_s": 100.0}, {"at_s": 101.0, "samples": 4}, {"at_s": 102.5, "samples": 8}]
    killed_at_once = [{"attempt": 2.0, "clock_s": 500.0}]
    after_a_reboot = [{"attempt": 3.0, "clock_s": 7.0}, {"at_s": 8.0, "samples": 12}]
    assert records.seconds_of([*first, *killed_at_once, *after_a_reboot]) == 3.5
    assert records.seconds_of([]) == 0


@pytest.mark.parametrize(
    ("other", "overlaps"),
    [
        ((130.0, 60.0, 50.0), True),
        ((150.0, 80.0, 50.0), False),
        ((110.0, 80.0, 50.0), False),  # the wall clock was set back
        ((950.0, 40.0, 50.0), False),  # the machine was restarted
    ],
)
def test_attempts_overlap_if_they_do_by_both_clocks(other, overlaps):
    first, second = records.AttemptTimes(100.0, 30.0, 50.0), records.AttemptTimes(*other)
    assert first.overlaps(second) == second.overlaps(first) == overlaps


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, '{"b": 2}\n'),
        ("", '{"b": 2}\n'),  # left by a process that was killed before its first line
        ('{"a": 1}\n', '{"a": 1}\n{"b": 2}\n'),
        ('{"a": 1}\n{"a"', '{"a": 1}\n{"a"\n{"b": 2}\n'),
    ],
)
def test_appending_begins_a_new_line_without_an_empty_one(tmp_path, before, after):
    file = tmp_path / "records.jsonl"
    if before is not None:
        file.write_text(before)
    with records.open_lines(file) as stream:
        stream.write('{"b": 2}\n')
    assert file.read_text() == after


def test_only_the_end_of_a_long_file_is_read(tmp_path):
    file = tmp_path / "telemetry.jsonl"
    file.write_bytes(b"0123456\n" * 2**20)
    tracemalloc.start()
    try:
        records.open_lines(file).close()
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 2**20
