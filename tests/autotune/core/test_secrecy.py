"""What leaves this machine, and when: no key, no home directory."""

import pytest

from autotune.core import secrecy
from autotune.core.errors import InputError

KEY = "made-up-key"


def test_no_text_that_leaves_has_a_key_or_the_users_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("SOME_API_KEY", "made-up-key")
    values = {"data": "/home/somebody/images", "list": ["made-up-key", 1, None], "flag": True}
    assert secrecy.cleaned(values) == {"data": "~/images", "list": ["(hidden)", 1, None], "flag": True}


@pytest.mark.parametrize(
    ("asked", "environment", "online"),
    [
        ("auto", {}, False),
        ("auto", {"WANDB_API_KEY": ""}, False),
        ("auto", {"WANDB_API_KEY": KEY}, True),
        ("auto", {"WANDB_API_KEY": KEY, "WANDB_MODE": "offline"}, False),
        ("online", {"WANDB_API_KEY": KEY}, True),
        ("offline", {"WANDB_API_KEY": KEY}, False),
    ],
)
def test_runs_go_online_only_with_a_key(asked: str, environment: dict[str, str], online: bool) -> None:
    assert secrecy.wandb_is_online(asked, environment) is online


def test_online_without_a_key_is_a_mistake_of_the_users() -> None:
    with pytest.raises(InputError, match="WANDB_API_KEY"):
        secrecy.wandb_is_online("online", {})
