"""Checkpoints are complete or absent, are read without running code, and mismatches are reported."""

import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from r2gen import checkpoint
from r2gen.errors import InputError, StorageError
from tests.r2gen.faults import no_file_beyond


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    state: dict[str, Any] = {"model": {"w": torch.randn(3)}, "step": 7, "best": -torch.inf, "words": ["a"]}
    checkpoint.save(tmp_path / "c.pt", state)
    found = checkpoint.load(tmp_path / "c.pt")
    assert torch.equal(found.pop("model")["w"], state.pop("model")["w"])
    assert found == {"format": checkpoint.FORMAT, **state}
    assert [file.name for file in tmp_path.iterdir()] == ["c.pt"]


@pytest.mark.parametrize(("limit", "floats"), [(100, 10), (5_000, 100_000), (200_000, 100_000)])
def test_a_full_disk_leaves_the_old_checkpoint_and_nothing_else(
    tmp_path: Path, limit: int, floats: int
) -> None:
    file = tmp_path / "c.pt"
    checkpoint.save(file, {"step": 1})
    with no_file_beyond(limit), pytest.raises(StorageError) as caught:
        checkpoint.save(file, {"weights": torch.zeros(floats)})
    assert str(caught.value) == (
        f"checkpoint {file}: cannot be written: File too large; free some space and run the same command "
        "again: it goes on from the checkpoint before, if there is one"
    )
    assert checkpoint.load(file)["step"] == 1
    assert [left.name for left in tmp_path.iterdir()] == ["c.pt"]


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"c\.pt: cannot be written: No such file or directory"):
        checkpoint.save(tmp_path / "gone" / "c.pt", {})


def test_a_kill_while_writing_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "c.pt", {"step": 1})
    (tmp_path / "c.pt.tmp").write_bytes(b"half of")
    assert checkpoint.load(tmp_path / "c.pt")["step"] == 1
    checkpoint.save(tmp_path / "c.pt", {"step": 2})
    assert checkpoint.load(tmp_path / "c.pt")["step"] == 2
    assert not (tmp_path / "c.pt.tmp").exists()


def test_a_directory_is_made_and_left_empty(tmp_path: Path) -> None:
    checkpoint.prepare(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("directory", ["/proc/x", "/dev/null", "/dev/null/x"])
def test_a_directory_that_cannot_be_written_is_refused(directory: str) -> None:
    with pytest.raises(StorageError, match=f"directory {directory}: cannot be written: "):
        checkpoint.prepare(Path(directory))


class _Mischief:
    def __reduce__(self) -> tuple[Any, ...]:
        return (resource.getpagesize, ())


@pytest.mark.parametrize("state", [{"format": 1, "x": _Mischief()}, {"state_dict": _Mischief()}])
def test_code_in_a_file_is_not_run(tmp_path: Path, state: dict[str, Any]) -> None:
    torch.save(state, tmp_path / "c.pt")
    with pytest.raises(InputError, match="is not a checkpoint, or holds more than tensors and plain values"):
        checkpoint.load(tmp_path / "c.pt")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory")], ids=repr)
def test_a_checkpoint_too_large_for_memory_is_still_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch, "load", refuse)
    with pytest.raises(type(error)) as caught:
        checkpoint.load(tmp_path / "c.pt")
    assert caught.value is error


@pytest.mark.parametrize("state", [{"format": 0}, {"weights": 1}, [1], torch.zeros(1)])
def test_another_kind_of_file_is_refused(tmp_path: Path, state: Any) -> None:
    torch.save(state, tmp_path / "c.pt")
    with pytest.raises(InputError, match=r"neither ours \(format 1\) nor the original R2Gen's"):
        checkpoint.load(tmp_path / "c.pt")


def test_an_original_checkpoint_with_a_numpy_number_is_read(tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "monitor_best": np.float64(0.5)}, tmp_path / "c.pt")
    assert checkpoint.load(tmp_path / "c.pt")["monitor_best"] == 0.5


def test_every_weight_that_does_not_fit_is_counted() -> None:
    weights = {"weight": torch.zeros(2, 2), "surplus": torch.zeros(1)}
    said = r"bias.*; has surplus, which the model has not; weight is \[2, 2\], the model's is \[1, 2\]"
    with pytest.raises(InputError, match=said):
        checkpoint.load_weights(nn.Linear(2, 1), weights, Path("c.pt"))


@pytest.mark.parametrize(
    ("counted", "said"),
    [
        (("a", "c"), "has 2 words, that of the data has 2; the first difference is 'b', now 'c'"),
        (("a",), "has 2 words, that of the data has 1; the first difference is 'b', now None"),
        (("a", "b", "c"), "has 2 words, that of the data has 3; the first difference is None, now 'c'"),
    ],
)
def test_the_first_word_that_differs_is_named(counted: Sequence[str], said: str) -> None:
    checkpoint.require_vocabulary(["a", "b"], ("a", "b"), Path("c.pt"))
    with pytest.raises(InputError, match=said):
        checkpoint.require_vocabulary(["a", "b"], counted, Path("c.pt"))


def test_random_numbers_continue_after_restoring() -> None:
    state = checkpoint.rng_state()
    drawn = torch.rand(3)
    checkpoint.set_rng_state(state)
    assert torch.equal(torch.rand(3), drawn)
