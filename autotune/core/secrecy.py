"""Keys and passwords come from the environment, and are written nowhere: told by their name or their form."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from autotune.core.errors import InputError, printable

_SECRET_NAME = re.compile(r"api_?key|secret|passw(or)?d|credential|(private|access)_?key", re.IGNORECASE)
# A token is as often a piece of text, such as pad_token: of those only what cannot be a word is refused.
_TOKEN_NAME = re.compile(r"(^|[_.-])token$", re.IGNORECASE)
_TOKEN = re.compile(r"[\w.+/=-]{16,}")
_KEY = r"(?:\w+-)?[0-9a-fA-F]{40}|wandb_v\d+_\w{20,}"  # W&B's, old and new
_WHOLE_KEY = re.compile(_KEY)
_KEY_IN_TEXT = re.compile(rf"(?<![\w/])(?:{_KEY})(?![\w/])")  # a digest in a path is none
# What stands before the host in a URL: a password after a name, or a token alone.
_IN_URL = re.compile(r"""(?<=://)(?P<name>[^\s/@:"]{0,256}:)?(?P<secret>[^\s/"]{1,1024})(?=@)""")
_SHORTEST_IN_URL = 16  # of a secret without a name before it: ssh://git@host has none to hide
_SHORTEST = 8  # of a value that is looked for in texts: a shorter one is found in innocent words
_HIDDEN = "(hidden)"


def refuse(values: Mapping[str, Any], source: str) -> None:
    """Raises InputError where a setting holds a key or a password, without saying it."""
    for name, value in _settings(values, "", set()):
        if _is_key(name, value):
            shown = printable(_KEY_IN_TEXT.sub(_HIDDEN, name.strip(".")))
            raise InputError(
                f"{source}: {shown}: looks like a key or a password, which a search would write to disk: "
                "remove it, and use an environment variable such as WANDB_API_KEY"
            )


def _settings(values: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Every value below `values` with the path of its names; what YAML's aliases repeat comes once."""
    if not isinstance(values, Mapping | list | tuple):
        yield name, values
    elif id(values) not in seen:
        seen.add(id(values))
        items = values.items() if isinstance(values, Mapping) else (("", value) for value in values)
        for key, value in items:
            yield from _settings(value, f"{name}.{key}" if key != "" else name, seen)


def _is_key(path: str, value: Any) -> bool:
    names = path.split(".")
    if any(_WHOLE_KEY.fullmatch(name) for name in names):
        return True
    if value is None or isinstance(value, bool):
        return False
    text = str(value) if isinstance(value, str | bytes) else ""
    if _WHOLE_KEY.fullmatch(text) or any(_in_urls(text)):
        return True
    if any(_TOKEN_NAME.search(name) for name in names) and _TOKEN.fullmatch(text):
        return True
    return any(_SECRET_NAME.search(name) for name in names)


def hidden(text: str, environment: Mapping[str, str]) -> str:
    """`text` without W&B's keys, the passwords in its URLs, and what in the `environment` is one."""
    return hider(environment)(text)


def hider(environment: Mapping[str, str]) -> Callable[[str], str]:
    """What does the same to many texts.

    Of the `environment` count the values of variables that are called like a key or a password, each of
    their lines by itself, and passwords in URLs.
    """
    known = {part for part in _secrets(environment) if len(part) >= _SHORTEST}
    longest_first = sorted(known, key=len, reverse=True)
    return partial(_without, re.compile("|".join(map(re.escape, longest_first)) or "(?!)"))


def _without(known: re.Pattern[str], text: str) -> str:
    return _KEY_IN_TEXT.sub(_HIDDEN, _IN_URL.sub(_url_hidden, known.sub(_HIDDEN, text)))


def _secrets(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if _SECRET_NAME.search(name) or _TOKEN_NAME.search(name):
            yield from (value, *value.splitlines())
        yield from _in_urls(value)


def _in_urls(text: str) -> Iterator[str]:
    return (found["secret"] for found in _IN_URL.finditer(text) if _is_secret(found))


def _is_secret(found: re.Match[str]) -> bool:
    return found["name"] is not None or len(found["secret"]) >= _SHORTEST_IN_URL


def _url_hidden(found: re.Match[str]) -> str:
    return f"{found['name'] or ''}{_HIDDEN}" if _is_secret(found) else found[0]


def cleaned(value: Any) -> Any:
    """`value`, but that no text in it has a key, or the user's name in a path."""
    home, hide = os.environ.get("HOME", ""), hider(os.environ)
    return each_text(value, lambda text: hide(text).replace(home, "~") if len(home) > 1 else hide(text))


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """`value` with every text in it as `change` makes it; the names in it stay."""
    if isinstance(value, Mapping):
        return {key: each_text(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [each_text(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def wandb_is_online(asked: str, environment: Mapping[str, str]) -> bool:
    """Whether runs go to the server: under `auto` where WANDB_API_KEY is set and WANDB_MODE does not forbid.

    Raises InputError when `online` is asked for without a key.
    """
    has_key = bool(environment.get("WANDB_API_KEY"))
    if asked == "online" and not has_key:
        raise InputError("--wandb online: needs WANDB_API_KEY in the environment, which is not set")
    if asked == "auto":
        return has_key and environment.get("WANDB_MODE", "online") == "online"
    return asked == "online"
