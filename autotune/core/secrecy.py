"""Keys and passwords come from the environment, and are written nowhere: told by their name or their form."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from autotune.core.errors import InputError, printable

_SECRET_NAME = re.compile(r"api_?key|secret|passw(or)?d|credential|(private|access)_?key", re.IGNORECASE)
# A token is as often a piece of text, such as pad_token: of those only what cannot be a word is refused.
_TOKEN_NAME = re.compile(r"(^|[_.-])token$", re.IGNORECASE)
_TOKEN = re.compile(r"[\w.+/=-]{16,}")
_KEY = r"(?:\w+-)?[0-9a-fA-F]{40}|wandb_v\d+_\w{20,}"  # W&B's, old and new
_WHOLE_KEY = re.compile(_KEY)
_KEY_IN_TEXT = re.compile(rf"(?<![\w/])(?:{_KEY})(?![\w/])")  # a digest in a path is none
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
    if _WHOLE_KEY.fullmatch(text):
        return True
    if any(_TOKEN_NAME.search(name) for name in names) and _TOKEN.fullmatch(text):
        return True
    return any(_SECRET_NAME.search(name) for name in names)


def hidden(text: str, environment: Mapping[str, str]) -> str:
    """`text` without W&B's keys, and without what in the `environment` is a key or a password by its name."""
    for name, value in environment.items():
        is_secret = _SECRET_NAME.search(name) or _TOKEN_NAME.search(name)
        if is_secret and len(value) >= _SHORTEST:
            text = text.replace(value, _HIDDEN)
    return _KEY_IN_TEXT.sub(_HIDDEN, text)


def cleaned(value: Any) -> Any:
    """`value`, but that no text in it has a key, or the user's name in a path."""
    if isinstance(value, Mapping):
        return {key: cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    if not isinstance(value, str):
        return value
    home, shown = os.environ.get("HOME", ""), hidden(value, os.environ)
    return shown.replace(home, "~") if len(home) > 1 else shown


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
