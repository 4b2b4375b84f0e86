"""Samples of a command, and of the checkpoint that it goes on from."""

import math
import time

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
