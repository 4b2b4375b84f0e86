"""Recognises keys and passwords by name or form, refuses them in settings and hides them in texts."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from autotune.core.errors import InputError, printable

_ANY, _NOTHING = re.compile(r".+", re.DOTALL), re.compile(r"(?!)")
_MIXED = re.compile(r".*[^A-Za-z].*", re.DOTALL)
# Names of secrets in snake case, with the form of the value in a setting or an argument, which tells a secret
# from an ordinary word (as in pad_token), and its form in an environment variable.
_SECRETS = (
    (
        re.compile(
            r"secret|passw(or)?d|passphrase|passcode|credential|(api|private|access|ssh|account)_?key"
        ),
        _ANY,
        _ANY,
    ),
    (re.compile(r"(^|_)(pass|pwd|pw)(_?\d+)?$"), re.compile(r"(?![\d.]+$|~?/).{8,}"), _ANY),
    (re.compile(r"(^|_)tokens?(_?\d+)?$"), re.compile(r"[\w.+/=:-]{16,}"), _ANY),
    (
        re.compile(r"(^|_)(pat|auth|authorization|jwt|cookie|bearer|otp)(_?\d+)?$"),
        re.compile(r"(?=.*\d)[\w.+/=:~%-]{20,}"),
        _MIXED,
    ),
    (re.compile(r"(^|_)key(_?\d+)?$"), re.compile(r"(?=.*\d)[\w+=-]{20,}"), _MIXED),
    (re.compile(r"(?<!by)(?<!com)(?<!old)(pass|token|pwd)s?(_?\d+)?$"), _NOTHING, _ANY),  # as in SSHPASS
    (
        re.compile(r"(^|_)(tokens?|key|pass|pat)_[a-z]+$|auth_config$|connection_string$"),
        _NOTHING,
        re.compile(r"(?=.*\d)(?=.*[A-Za-z]).{16,}", re.DOTALL),
    ),
)
_ELSEWHERE = re.compile(r"_(file|path|dir|env|var|name)s?$")  # names a place of a secret, not the secret
_NEW_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|\W+")
# An argument in a text: --name VALUE, --name=VALUE, name=VALUE or name: VALUE. The value may hold others.
_ARGUMENT = re.compile(
    r"""(?:^|(?<=[\s"',;=?&{(\[]))(?:--?(?P<flag>[A-Za-z][\w.-]*)(?:=|\s+(?!-))"""
    r"""|[+~]*(?P<name>[A-Za-z][\w.-]*)(?:=|["']?:\s*))"""
    r"""(?=(?P<value>"[^"]*"|'[^']*'|[^\s"']+))"""
)
_REST = re.compile(r"[&,;}\])].*", re.DOTALL)  # of a value among others, as in a URL
_PATH = re.compile(r"~?/(?=.*\.).+/.+")  # encoded keys have no dot
_FILLED_IN = re.compile(r"(\$\w+|\$?\{[^{}]*\})([&,;}\])]|$)")
# A placeholder or a switch.
_NO_SECRET = re.compile(r"\$\w+|\$?\{[^{}]*\}|true|false|yes|no|on|off|none|null", re.IGNORECASE)
_HEADER = re.compile(
    r"(?P<name>\bbearer\s+|\bauthorization:\s*(?:basic|token)\s+)(?P<secret>[\w.+/=~-]{16,})", re.IGNORECASE
)
_KEY = r"(?:\w+-)?[0-9a-fA-F]{40}|wandb_v\d+_\w{20,}"  # W&B's, old and new
_WHOLE_KEY = re.compile(_KEY)
_KEY_IN_TEXT = re.compile(rf"(?<![\w/])(?:{_KEY})(?![\w/])")  # a digest in a path is no key
# Credentials before the host in a URL: a user name with a password, or a token alone.
_IN_URL = re.compile(r"""(?<=://)(?P<name>[^\s/@:"]{0,256}:)?(?P<secret>[^\s/"]{1,1024})(?=@)""")
_SHORTEST_IN_URL = 16  # a token alone; the user in ssh://git@host is no secret
_SHORTEST = 8  # a shorter value would match innocent words
_HIDDEN = "(hidden)"


def refuse_secrets(values: Mapping[str, Any], source: str) -> None:
    """Raises InputError if a setting, or an argument in a text, is a key or a password; does not quote it."""
    secrets, hide = list(_secrets(os.environ)), hider(os.environ)
    for name, value in _settings(values, "", set()):
        text = f"{name} {_text(value)}"
        variable = next((variable for variable, secret in secrets if secret in text), None)
        if variable or _is_key(name, value):
            shown = printable(hide(name.strip(".: "))) or "a word"
            problem = f"holds the value of {variable}" if variable else "looks like a key or a password"
            raise InputError(
                f"{source}: {shown}: {problem}, which a search would write to disk; "
                "put it into an environment variable such as WANDB_API_KEY instead, which trials inherit"
            )


def _settings(values: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yields the path and value of every leaf and of every argument in a text; a YAML alias only once."""
    if id(values) in seen:
        return
    text = ""
    if isinstance(values, Mapping | list | tuple):
        seen.add(id(values))
        items = values.items() if isinstance(values, Mapping) else [("", value) for value in values]
        for key, value in items:
            yield from _settings(value, f"{name}.{_text(key)}" if key != "" else name, seen)
        if not isinstance(values, Mapping):
            text = " ".join(_text(v) for v in values if not isinstance(v, Mapping | list | tuple))
    else:
        yield name, values
        text = _text(values)
    for match in _ARGUMENT.finditer(text.replace("\\\n", " ")):
        given = match["value"].strip("\"'")
        values = () if _FILLED_IN.match(given) else {given, _REST.sub("", given)}
        yield from ((f"{name}: {match['flag'] or match['name']}", value) for value in values)


def _is_key(path: str, value: Any) -> bool:
    names = path.rpartition(": ")[2].split(".")  # an argument's own: the text has been judged by the others
    if any(_WHOLE_KEY.fullmatch(name) for name in names):
        return True
    if value is None or isinstance(value, bool):
        return False
    text = _text(value)
    if isinstance(value, str | bytes) and (_WHOLE_KEY.fullmatch(text) or any(_in_text(text))):
        return True
    if _NO_SECRET.fullmatch(text) or _PATH.fullmatch(text):
        return False
    return any(form.fullmatch(text) for name in names for form, _ in _forms(name))


def _text(value: Any) -> str:
    """Returns `value` as text; nothing of an integer with more digits than Python writes, which is no key."""
    try:
        return str(value)
    except ValueError:
        return ""


def _forms(name: str) -> Iterator[tuple[re.Pattern[str], re.Pattern[str]]]:
    """Yields the patterns of a secret called `name`, as a setting and as an environment variable."""
    words = _NEW_WORD.sub("_", name).lower()
    if not _ELSEWHERE.search(words):
        yield from ((setting, variable) for names, setting, variable in _SECRETS if names.search(words))


def hide_secrets(text: str, environment: Mapping[str, str]) -> str:
    """Returns `text` with W&B keys, passwords in URLs and secrets of the `environment` hidden."""
    return hider(environment)(text)


def hider(environment: Mapping[str, str]) -> Callable[[str], str]:
    """Returns `hide_secrets` for one environment, compiled for many texts."""
    longest_first = sorted({part for _, part in _secrets(environment)}, key=len, reverse=True)
    known = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def hide(text: str) -> str:
        hidden = _IN_URL.sub(_secret_hidden, known.sub(_HIDDEN, text))
        return _KEY_IN_TEXT.sub(_HIDDEN, _HEADER.sub(_secret_hidden, hidden))

    return hide


def _secrets(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the name of every variable that holds a secret, with the secret part of its value."""
    for name, value in environment.items():
        is_open = name == "PWD" or _PATH.fullmatch(value) is not None
        is_secret = not is_open and any(form.fullmatch(value) for _, form in _forms(name))
        parts = [*((value, *value.splitlines()) if is_secret else ()), *_in_text(value)]
        yield from ((name, part) for part in parts if len(part) >= _SHORTEST)


def _in_text(text: str) -> Iterator[str]:
    for form in (_IN_URL, _HEADER):
        yield from (match["secret"] for match in form.finditer(text) if _is_secret(match))


def _is_secret(match: re.Match[str]) -> bool:
    return match["name"] is not None or len(match["secret"]) >= _SHORTEST_IN_URL


def _secret_hidden(match: re.Match[str]) -> str:
    return f"{match['name'] or ''}{_HIDDEN}" if _is_secret(match) else match[0]


def without_secrets(value: Any) -> Any:
    """Returns `value` with secrets hidden in its texts, and the home directory written as ~."""
    home, hide = os.environ.get("HOME", ""), hider(os.environ)
    return each_text(value, lambda text: hide(text).replace(home, "~") if len(home) > 1 else hide(text))


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """Returns `value` with `change` applied to every text in it; keys of mappings stay."""
    if isinstance(value, Mapping):
        return {key: each_text(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [each_text(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def wandb_is_online(asked: str, environment: Mapping[str, str]) -> bool:
    """Returns True if runs go to the W&B server; raises InputError if `online` is asked without a key."""
    has_key = bool(environment.get("WANDB_API_KEY"))
    if asked == "online" and not has_key:
        raise InputError("--wandb online: needs WANDB_API_KEY in the environment, which is not set")
    if asked == "auto":
        return has_key and environment.get("WANDB_MODE", "online") == "online"
    return asked == "online"
