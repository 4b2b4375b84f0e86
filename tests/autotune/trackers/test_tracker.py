"""Tags of runs."""

import pytest

from autotune.core.errors import InputError
from autotune.trackers.tracker import check_tags, run_tags, session_tags

WANDB_KEY = "0123456789abcdef" * 2 + "01234567"


def test_a_session_is_found_by_its_workload_its_device_and_its_users_own_tags() -> None:
    assert session_tags("r2gen", "NVIDIA L4", ("thesis", "r2gen")) == ("r2gen", "NVIDIA L4", "thesis")


def test_a_trial_is_found_by_its_precision_too() -> None:
    assert run_tags(("r2gen",), {"precision": "bf16", "micro_batch_size": 4}) == ("r2gen", "bf16")
    assert run_tags(("r2gen",), {"precision": None}) == ("r2gen",)
    assert run_tags(("r2gen",), {"lr": 0.1}) == ("r2gen",)


def test_tags_that_wandb_rejects_are_shortened_or_dropped() -> None:
    assert session_tags("some.module:fit", "x" * 70, ()) == ("some.module:fit", "x" * 64)
    assert session_tags("r2gen", "", ()) == ("r2gen",)


def test_tags_contain_neither_keys_nor_home_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("WANDB_API_KEY", WANDB_KEY)
    found = session_tags("/home/somebody/train.py", "cpu", (f"as {WANDB_KEY}",))
    assert found[0] == "~/train.py"
    assert WANDB_KEY not in found[2]


@pytest.mark.parametrize("tag", ["", "  ", "x" * 65])
def test_a_tag_that_wandb_rejects_is_refused(tag: str) -> None:
    with pytest.raises(InputError, match="--tag: a tag has 1 to 64 characters, got '"):
        check_tags(("fine", tag))
    assert check_tags(("x" * 64,)) == ("x" * 64,)
