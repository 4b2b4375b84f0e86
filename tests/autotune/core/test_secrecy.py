"""Keys, passwords and the home directory stay out of what is written."""

import pytest

from autotune.core import secrecy
from autotune.core.errors import InputError

KEY = "made-up-key"


def test_keys_and_the_home_directory_are_hidden_in_nested_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("SOME_API_KEY", "made-up-key")
    values = {"data": "/home/somebody/images", "list": ["made-up-key", 1, None], "flag": True}
    hidden = {"data": "~/images", "list": ["(hidden)", 1, None], "flag": True}
    assert secrecy.without_secrets(values) == hidden


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


def test_online_without_a_key_is_refused() -> None:
    with pytest.raises(InputError, match="WANDB_API_KEY"):
        secrecy.wandb_is_online("online", {})


ENVIRONMENT = {
    "DATABASE_URL": "postgres://me:made-up-word@db.example/x",
    "SIGNING_PRIVATE_KEY": "-----BEGIN-----\nmade-up-line\n-----END-----",
    "DEPLOY_KEY": "-----BEGIN-----\nmade-up-row\n-----END-----",
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
        ("line 2: made-up-line made-up-row", "line 2: (hidden) (hidden)"),
        ("ssh://git@host http://host:80/a@b me@host", "ssh://git@host http://host:80/a@b me@host"),
        ("/home/somebody/x: no such file", "/home/somebody/x: no such file"),
    ],
)
def test_secrets_in_urls_and_variables_are_hidden(text: str, shown: str) -> None:
    assert secrecy.hide_secrets(text, ENVIRONMENT) == shown


def test_a_password_in_a_url_is_refused_and_not_quoted() -> None:
    with pytest.raises(InputError, match="store: looks like a key or a password") as error:
        secrecy.refuse_secrets({"store": "postgres://me:made-up-word@db.example/x"}, "baseline")
    assert "made-up-word" not in str(error.value)


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_KEY", "DB_PASS", "MYSQL_PWD", "GPG_PASSPHRASE", "SSH_KEY", "GITHUB_PAT", "REDIS_AUTH"),
        *("OPENAI_KEY_2", "STRIPE_SECRET", "HF_TOKEN", "hfToken", "GITLAB_TOKENS", "SSO_COOKIE", "LDAP_PW"),
        *("dbPass", "SSHPASS", "NGROK_AUTHTOKEN", "DBPASS", "HFTOKEN", "HF_TOKEN_READ", "OPENAI_KEY_PROD"),
    ],
)
def test_variables_named_like_secrets_are_hidden(name: str) -> None:
    assert secrecy.hide_secrets("use made-up-word-0123.", {name: "made-up-word-0123"}) == "use (hidden)."


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SORT_KEY", "accuracy"),
        ("PWD", "/home/somebody"),
        ("OLDPWD", "/home/somebody"),
        ("TOKEN_FILE", "made-up/file-123"),
        ("SORT_KEY_COLUMN", "made-up-column"),
        ("API_KEY_FILE", "made-up/file"),
        ("SSH_AUTH_SOCK", "/made/up"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/made/up/key.json"),
        ("BYPASS", "made-up-word"),
        ("MONKEY", "made-up-word"),
    ],
)
def test_other_variables_are_shown(name: str, value: str) -> None:
    assert secrecy.hide_secrets(f"use {value}", {name: value}) == f"use {value}"


def test_a_bearer_header_is_hidden() -> None:
    text = "Authorization: Bearer made-up-0123456789 and bearer of good news"
    assert secrecy.hide_secrets(text, {}) == "Authorization: Bearer (hidden) and bearer of good news"


@pytest.mark.parametrize(
    "text",
    [
        "python train.py --max_token 512 --eos-token </s> --image-key pixel_values_224 --tokenizer gpt2",
        "python train.py --two-pass first --password {password} --hf_token=$HF_TOKEN --api-key ${oc.env:KEY}",
        "python train.py --use-secrets --epochs 3 --password-file /run/x --ask-password true",
        "python -m train key=value data.key=made_up_column sort_key=length config.opts={a:1,b:{c:2}}",
        "python train.py --pwd /home/somebody/run --special-tokens <s>,</s> --url=s3://bucket/x?list=1&key=a",
        'curl https://host/x?api_key=$API_KEY&v=2 {api_key: $API_KEY} {"password": {password}, "lr": 1}',
        "val_loss: ([0-9.]+) tokens: ([0-9]+) at cuda:0 http://host:6006 key: image",
    ],
)
def test_ordinary_arguments_are_not_taken_for_keys(text: str) -> None:
    secrecy.refuse_secrets({"run": text, "words": text.split()}, "test")


def test_an_integer_that_python_does_not_write_is_no_key() -> None:
    secrecy.refuse_secrets({"steps": 10**5000, "list": [10**5000], "more": {10**5000: 1}}, "test")
