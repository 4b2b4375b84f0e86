"""The sample counts of a command, and of the checkpoint that it resumes from."""

import io
import math
import os
import shutil
import time
from pathlib import Path

import pytest

from autotune.inside.site import autotune_saves as saves
from autotune.inside.site.autotune_saves import Counts
from autotune.workloads.command.counting import Checkpoint, Counter


def test_steps_count_their_samples_or_the_batch():
    counter = Counter(Counts(100), 8)
    counter.step(1.0, None)
    counter.step(2.0, 5)
    assert (counter.samples, counter.steps) == (113, 2)
    assert [counter.at(moment).samples for moment in (0.5, 1.0, 1.5, 9.0)] == [100, 108, 108, 113]


def test_a_resumed_scripts_own_count_is_used_and_a_restarted_one_is_added():
    on, anew = Counter(Counts(100), 8), Counter(Counts(100), 8)
    assert on.take_printed(1.0, 108)
    assert anew.take_printed(1.0, 8)
    assert on.samples == anew.samples == 108
    assert not on.take_printed(2.0, 108)


def test_a_script_that_reports_fewer_samples_than_were_counted_is_believed_once_it_has_passed_them():
    counter = Counter(Counts(0), 8)
    for moment in (1.0, 2.0):
        counter.step(moment, None)
    told = [counter.complete(3.0, {"samples": samples, "loss": 1.0}) for samples in (8, 16, 24, 20)]
    assert [record["samples"] for record in told] == [16, 16, 24, 20], "the last is the script's own mistake"
    assert told[0]["loss"] == 1.0
    assert counter.complete(4.0, {"acc": 0.5}) == {"samples": 24, "acc": 0.5}
    assert Counter(Counts(100), 8).complete(1.0, {"samples": 90})["samples"] == 90, "of its checkpoint"


def test_a_checkpoint_is_of_the_samples_when_it_was_written(tmp_path):
    file, counter = tmp_path / "last.pt", Counter(Counts(0), 8)
    checkpoint = Checkpoint(str(file), tmp_path)
    assert (checkpoint.exists, checkpoint.counts()) == (False, Counts(0))
    counter.step(time.monotonic(), None)
    file.write_text("saved")
    counter.step(time.monotonic() + 1.0, None)
    checkpoint.look(counter, time.monotonic() - 10.0)  # steps since then are not counted yet
    assert Checkpoint(str(file), tmp_path).counts() is None
    checkpoint.look(counter, math.inf)
    assert Checkpoint(str(file), tmp_path).counts() == Counts(8)
    file.unlink()
    assert Checkpoint(str(file), tmp_path).counts() == Counts(0)


@pytest.mark.parametrize("wrong_s", [-3600.0, 3600.0])
def test_a_file_system_whose_clock_is_wrong_changes_nothing(tmp_path, wrong_s):
    """A copy that preserves times, as by `rsync -t`, is no different."""
    file, counter = tmp_path / "last.pt", Counter(Counts(0), 8)
    checkpoint = Checkpoint(str(file), tmp_path)
    counter.step(time.monotonic(), None)
    checkpoint.look(counter, math.inf)
    file.write_text("saved")
    os.utime(file, (time.time() + wrong_s,) * 2)
    for _ in range(2):
        checkpoint.look(counter, time.monotonic() - 1.0)
    counter.step(time.monotonic(), None)
    checkpoint.look(counter, math.inf)
    assert Checkpoint(str(file), tmp_path).counts() == Counts(8)


def test_a_directory_is_as_new_as_its_newest_file(tmp_path):
    inside = tmp_path / "step-1" / "deep" / "weights"
    inside.parent.mkdir(parents=True)
    counter, checkpoint = Counter(Counts(0), 8), Checkpoint(str(tmp_path / "step-*"), tmp_path)
    counter.step(time.monotonic(), None)
    inside.write_text("saved")
    checkpoint.look(counter, math.inf)
    assert Checkpoint(str(tmp_path / "step-*"), tmp_path).counts() == Counts(8)


def test_a_checkpoint_that_the_hook_has_noted_is_known_however_it_is_copied(tmp_path):
    first, second = (noted(tmp_path, name, samples) for name, samples in (("a", 124), ("b", 160)))
    checkpoint = Checkpoint(str(tmp_path / "last.pt"), tmp_path)
    for file, samples in ((first, 124), (second, 160), (first, 124)):
        shutil.copyfile(file, tmp_path / "last.pt")
        os.utime(tmp_path / "last.pt", (1, 1))
        assert checkpoint.counts() == Counts(samples)
    (tmp_path / "last.pt").write_text("cut off")
    assert checkpoint.counts() is None


def test_of_several_noted_files_in_a_directory_the_newest_counts(tmp_path):
    (tmp_path / "steps").mkdir()
    for name, samples in (("1.pt", 8), ("3.pt", 24), ("2.pt", 16)):
        noted(tmp_path, f"steps/{name}", samples)
    (tmp_path / "steps" / "config.json").write_text("{}")
    assert Checkpoint(str(tmp_path / "steps"), tmp_path).counts() == Counts(24)


def noted(workdir, name, samples):
    """A checkpoint file whose saving the hook has seen."""
    (workdir / name).write_text(f"the weights after {samples}")
    saves.record(str(workdir), workdir / name, Counts(samples))
    return workdir / name


def test_a_truncated_note_is_ignored(tmp_path):
    file = noted(tmp_path, "last.pt", 8)
    with Path(saves.notes_file(str(tmp_path))).open("a") as notes:
        notes.write('{"digest": "')
    assert Checkpoint(str(file), tmp_path).counts() == Counts(8)


def test_a_large_file_is_known_by_its_size_its_end_and_pieces_of_the_rest():
    rows = bytearray(os.urandom(2**20))
    digests = [saves.digest(io.BytesIO(rows))]
    for at in (0, 2**20 - 1):
        rows[at] ^= 1
        digests.append(saves.digest(io.BytesIO(rows)))
    digests.append(saves.digest(io.BytesIO(rows + b"0")))
    assert len(set(digests)) == len(digests)


def test_a_scripts_own_sample_count_overrides_its_checkpoints(tmp_path):
    file, counter = tmp_path / "last.json", Counter(Counts(0), 8)
    file.write_text("1")
    checkpoint = Checkpoint(str(file), tmp_path)
    assert checkpoint.counts() is None
    counter.complete(1.0, {"samples": 40})
    checkpoint.trust(counter)
    file.write_text("2")
    assert Checkpoint(str(file), tmp_path).counts() == Counts(40)


def test_what_is_set_aside_is_no_checkpoint_any_more(tmp_path):
    (tmp_path / "work").mkdir()
    for content in ("first", "second"):
        checkpoint = Checkpoint(str(noted(tmp_path / "work", "last.pt", 8)), tmp_path / "work")
        (tmp_path / "work" / "last.pt").write_text(content)
        assert checkpoint.set_aside()
        assert not checkpoint.exists
        assert (tmp_path / "work" / ".rejected" / "last.pt").read_text() == content
    outside = Checkpoint(str(noted(tmp_path, "users.pt", 8)), tmp_path / "work")
    assert not outside.set_aside()
    assert outside.exists


def test_tokens_reported_by_steps_are_counted_and_saved_with_the_checkpoint(tmp_path):
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
