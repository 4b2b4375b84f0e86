"""Placeholders, flags and settings in, arguments and environment out. Pure; no shell is ever involved."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

# `{{name}}` stands for literal braces; any other brace, as in JSON or `${oc.env:HOME}`, is left as it is.
# A place in a list, `{betas[0]}`, is none of the settings, and is refused as such.
_PLACEHOLDER = re.compile(r"\{\{([\w.]+)\}\}|\{([A-Za-z_][\w.-]*(?:\[\d+\][\w.-]*)*)\}")
_WORKDIR = "{workdir}"
_CONTINUED = "\\\n"


def split(text: str) -> list[str]:
    """`text` as a shell would split it into words; raises ValueError where a quotation is not closed."""
    return shlex.split(text.replace(_CONTINUED, " "))


def names_in(texts: Iterable[str]) -> list[str]:
    """The placeholders in `texts`, each once, in the order of their appearance."""
    found = (match[2] for text in texts for match in _PLACEHOLDER.finditer(text))
    return list(dict.fromkeys(filter(None, found)))


def flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting under its dotted path; of nested ones the mapping that they are in, too, before them."""
    for name, value in settings.items():
        yield f"{above}{name}", value
        if isinstance(value, Mapping):
            yield from flat(value, f"{above}{name}.")


def unused(settings: Mapping[str, Any], used: Iterable[str]) -> list[str]:
    """The settings that none of the `used` names says, nor a mapping that they are in."""
    names = set(used)
    leaves = [path for path, value in flat(settings) if not isinstance(value, Mapping)]
    return [path for path in leaves if names.isdisjoint(_up(path))]


def _up(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def words(texts: Iterable[str], values: Mapping[str, Any]) -> list[str]:
    """`texts` with `values` in place of their placeholders: one word each, whatever a value has in it.

    A list alone in its word becomes a word for every element. What has no value stays as it is.
    """
    return [word for text in texts for word in _filled(text, values)]


def word(text: str, values: Mapping[str, Any]) -> str:
    """`text` with `values` in place of its placeholders; a list is written as JSON."""

    def found(match: re.Match[str]) -> str:
        if match[1]:
            return f"{{{match[1]}}}"
        return written(values[match[2]]) if match[2] in values else match[0]

    return _PLACEHOLDER.sub(found, text)


def typed(text: str, values: Mapping[str, Any]) -> Any:
    """The value of a placeholder that is alone in `text`, of its own type; else what `word` makes of it."""
    alone = _PLACEHOLDER.fullmatch(text)
    return values[alone[2]] if alone and alone[2] in values else word(text, values)


def _filled(text: str, values: Mapping[str, Any]) -> list[str]:
    alone = _PLACEHOLDER.fullmatch(text)
    value = values.get(alone[2]) if alone and alone[2] else None
    return [written(one) for one in value] if isinstance(value, list | tuple) else [word(text, values)]


def written(value: Any) -> str:
    """A value as an argument: scalars as Python writes them, lists and mappings as JSON without spaces."""
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, separators=(",", ":"), default=str)
    return str(value)


def key_of(value: Any) -> str:
    """A value as a key of JSON, which has texts alone: flags are found by it, from YAML or from JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def flags(given: Mapping[str, Mapping[str, Sequence[str]]], values: Mapping[str, Any]) -> list[str]:
    """What the settings' values add to the line; a value that has no flag adds nothing."""
    found = (by_value.get(key_of(values.get(name)), ()) for name, by_value in given.items())
    return words((text for texts in found for text in texts), values)


def path_in(texts: Sequence[str]) -> str | None:
    """The path below the workdir that `texts` name, as in `--resume={workdir}/last.pt`; None: they do not."""
    found = next((text for text in texts if _WORKDIR in text), None)
    return found and found[found.index(_WORKDIR) :]
