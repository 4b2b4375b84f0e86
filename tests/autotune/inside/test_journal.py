"""What a script has seen is in a file, however suddenly it ends."""

import itertools
import math

import pytest

from autotune.inside.site import autotune_journal as journal
from autotune.inside.site.autotune_journal import Journal, seen_at


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The clock of a journal ticks with every step, from 1 on."""
    ticks = itertools.count(1)
    monkeypatch.setattr(journal.time, "clock_gettime_ns", lambda _: next(ticks))
    monkeypatch.setattr(journal, "_COPIED_NS", math.inf)
    return str(tmp_path / "steps")


def test_what_had_been_seen_at_a_moment(file):
    script = Journal(file, 100, None)
    script.add(8, None)
    script.add(None, None)
    script.add(4, 30)
    script.add(4, 12)
    seen = [seen_at(file, moment_ns) for moment_ns in range(5)]
    assert seen == [(100, None), (108, None), (108, None), (112, 30), (116, 42)]


def test_the_next_process_of_a_script_goes_on(file):
    Journal(file, 0, 5).add(8, 1)
    Journal(file, 0, 5).add(8, 1)
    assert seen_at(file, 9) == (16, 7)


def test_of_a_long_training_the_last_steps_are_left(file, monkeypatch):
    monkeypatch.setattr(journal, "_MOST", 4)
    script = Journal(file, 0, None)
    for _ in range(10):
        script.add(1, None)
    assert [seen_at(file, moment_ns) for moment_ns in (6, 7, 10)] == [None, (7, None), (10, None)]


def test_what_is_no_journal_knows_nothing(tmp_path):
    assert seen_at(str(tmp_path / "none"), 9) is None
    (tmp_path / "begun").write_bytes(b"1")
    assert seen_at(str(tmp_path / "begun"), 9) is None
