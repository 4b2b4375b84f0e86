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


ENVIRONMENT = {
    "DATABASE_URL": "postgres://me:made-up-word@db.example/x",
    "SIGNING_PRIVATE_KEY": "-----BEGIN-----\nmade-up-line\n-----END-----",
    "HOME": "/home/somebody",
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at postgres://me:x@db.example/x", "at postgres://me:(hidden)@db.example/x"),
        ("redis://:x@host redis://:y@host", "redis://:(hidden)@host redis://:(hidden)@host"),
        ("https://0123456789abcdef@host/x.git", "https://(hidden)@host/x.git"),
        ("a password with @ is x://me:a@b@host", "a password with @ is x://me:(hidden)@host"),
        ("no entry for made-up-word", "no entry for (hidden)"),
        ("line 2: made-up-line", "line 2: (hidden)"),
        ("ssh://git@host http://host:80/a@b me@host", "ssh://git@host http://host:80/a@b me@host"),
        ("/home/somebody/x: no such file", "/home/somebody/x: no such file"),
    ],
)
def test_what_is_secret_in_a_url_or_a_variable_is_hidden(text: str, shown: str) -> None:
    assert secrecy.hidden(text, ENVIRONMENT) == shown


def test_a_password_in_a_settings_url_is_refused_and_not_said() -> None:
    with pytest.raises(InputError, match="store: looks like a key or a password") as error:
        secrecy.refuse({"store": "postgres://me:made-up-word@db.example/x"}, "baseline")
    assert "made-up-word" not in str(error.value)
