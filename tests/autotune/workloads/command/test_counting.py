"""Samples of a command, and of the checkpoint that it goes on from."""

import json
import math
import os
import time
from pathlib import Path

import pytest

from autotune.inside.site import autotune_journal as journal
from autotune.inside.site.autotune_journal import Journal
from autotune.workloads.command.counting import Checkpoint, Counter, Counts


def test_steps_count_their_samples_or_the_batch():
    counter = Counter(Counts(100), 8)
    counter.step(1.0, None)
    counter.step(2.0, 5)
    assert (counter.samples, counter.steps) == (113, 2)
    assert [counter.at(moment).samples for moment in (0.5, 1.0, 1.5, 9.0)] == [100, 108, 108, 113]


def test_a_script_that_goes_on_counting_is_believed_and_one_that_begins_anew_is_added():
    on, anew = Counter(Counts(100), 8), Counter(Counts(100), 8)
    assert on.said(1.0, 108)
    assert anew.said(1.0, 8)
    assert on.samples == anew.samples == 108
    assert not on.said(2.0, 108)


def test_a_script_that_reports_fewer_samples_than_were_counted_is_believed_once_it_has_passed_them():
    counter = Counter(Counts(0), 8)
    for moment in (1.0, 2.0):
        counter.step(moment, None)
    told = [counter.reported(3.0, {"samples": samples, "loss": 1.0}) for samples in (8, 16, 24, 20)]
    assert [record["samples"] for record in told] == [16, 16, 24, 20], "the last is the script's own mistake"
    assert told[0]["loss"] == 1.0
    assert counter.reported(4.0, {"acc": 0.5}) == {"samples": 24, "acc": 0.5}
    assert Counter(Counts(100), 8).reported(1.0, {"samples": 90})["samples"] == 90, "of its checkpoint"


def test_a_checkpoint_is_of_the_samples_when_it_was_written(tmp_path):
    file, counter = tmp_path / "last.pt", Counter(Counts(0), 8)
    checkpoint = Checkpoint(str(file), tmp_path)
    assert (checkpoint.exists, checkpoint.counts()) == (False, Counts(0))
    counter.step(time.monotonic(), None)
    file.write_text("saved")
    counter.step(time.monotonic() + 1.0, None)
    checkpoint.look(counter, time.monotonic() - 10.0)  # what happened since is not yet known
    assert Checkpoint(str(file), tmp_path).counts().samples == 0
    checkpoint.look(counter, math.inf)
    assert Checkpoint(str(file), tmp_path).counts().samples == 8
    file.unlink()
    assert Checkpoint(str(file), tmp_path).counts().samples == 0


def test_a_directory_is_as_new_as_what_is_in_it(tmp_path):
    inside = tmp_path / "step-1" / "deep" / "weights"
    inside.parent.mkdir(parents=True)
    counter, checkpoint = Counter(Counts(0), 8), Checkpoint(str(tmp_path / "step-*"), tmp_path)
    counter.step(time.monotonic(), None)
    inside.write_text("saved")
    checkpoint.look(counter, math.inf)
    assert Checkpoint(str(tmp_path / "step-*"), tmp_path).counts().samples == 8


@pytest.fixture
def trained(tmp_path):
    """The directory of a script that saved after three steps of 8, and was killed two steps later."""
    script, file = Journal(journal.file_of(str(tmp_path)), 100, None), tmp_path / "last.pt"
    for _ in range(3):
        script.add(8, None)
    file.write_text("saved")
    save_again(file)
    for _ in range(2):
        script.add(8, None)
    return tmp_path


def save_again(file):
    """Saves in a later tick of the file clock than all before, and in an earlier one than what follows."""
    before_ns, after_s = file.stat().st_mtime_ns, 2 * time.clock_getres(5)
    while file.stat().st_mtime_ns == before_ns:
        file.write_text("saved")
    time.sleep(after_s)


def again(workdir, **own):
    return Checkpoint(str(workdir / "last.pt"), workdir, **own)


def test_a_checkpoint_that_was_not_noted_before_the_kill_is_of_the_steps_that_the_script_has_noted(trained):
    assert again(trained).counts() == Counts(124)


def test_who_goes_on_leaves_a_note_before_the_steps_are_those_of_the_next_attempt(trained):
    assert again(trained).begin() == Counts(124)
    assert not Path(journal.file_of(str(trained))).exists()
    assert again(trained).counts() == Counts(124), "killed before its first step"
    Journal(journal.file_of(str(trained)), 124, None).add(8, None)
    assert again(trained).counts() == Counts(124), "killed before it has saved"


def test_a_note_is_of_the_checkpoint_that_it_was_written_for(trained):
    """One that came later, and that nobody has noted, had seen more."""
    Checkpoint(str(trained / "last.pt"), trained).begin()
    script = Journal(journal.file_of(str(trained)), 124, None)
    script.add(8, None)
    save_again(trained / "last.pt")
    assert again(trained).counts() == Counts(132)


def test_what_is_counted_by_the_output_and_was_not_noted_is_known_by_nobody(trained):
    assert not again(trained, has_journal=False).is_known
    again(trained).begin()
    assert again(trained, has_journal=False).is_known
    (trained / "last.pt").unlink()
    assert again(trained, has_journal=False).is_known
    again(trained, has_journal=False).begin()
    assert list(trained.iterdir()) == []


def test_a_copy_that_has_lost_its_times_is_of_what_was_noted(trained):
    again(trained).begin()
    Journal(journal.file_of(str(trained)), 124, None).add(8, None)
    for place in trained.iterdir():
        os.utime(place, (time.time() + 60,) * 2)
    assert again(trained).counts() == Counts(124)


def test_a_note_of_an_older_version_is_of_the_checkpoint_that_is_there(trained):
    (trained / ".samples").write_text(json.dumps({"samples": 40, "tokens": 7}))
    assert again(trained).counts() == Counts(40, 7)


def test_tokens_are_counted_where_steps_tell_them_and_kept_with_the_checkpoint(tmp_path):
    file = tmp_path / "last.pt"
    checkpoint, counter = Checkpoint(str(file), tmp_path), Counter(Counts(0), 8)
    assert counter.counts == {"samples": 0}
    for tokens in (100, 50):
        counter.step(time.monotonic(), 8, tokens)
    file.write_text("saved")
    checkpoint.look(counter, math.inf)
    again = Counter(Checkpoint(str(file), tmp_path).counts(), 8)
    again.step(time.monotonic(), 8, 25)
    assert again.counts == {"samples": 24, "tokens": 175}
