"""Reads command lines, and fills settings into them, without a shell. Pure."""

import itertools
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

# `{{name}}` stands for literal braces; any other brace, as in JSON or `${oc.env:HOME}`, is left as it is.
# A list index, `{betas[0]}`, is matched but names no setting, and is rejected as such.
_PLACEHOLDER = re.compile(r"\{\{([\w.]+)\}\}|\{([A-Za-z_][\w.-]*(?:\[\d+\][\w.-]*)*)\}")
_WORKDIR = "{workdir}"
_CONTINUED = "\\\n"
_TORCHRUNS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_LAUNCHERS = {  # with their options for the number of processes
    **dict.fromkeys(_TORCHRUNS, ("nproc_per_node", "nproc-per-node")),
    "accelerate": ("num_processes", "num-processes"),
    "deepspeed": ("num_gpus", "num-gpus"),
}


def split(text: str) -> list[str]:
    """Splits `text` into words as a shell does; raises ValueError if a quotation is not closed."""
    return shlex.split(text.replace(_CONTINUED, " "))


def names_in(texts: Iterable[str]) -> list[str]:
    """Returns the placeholders in `texts`, each once, in order of appearance."""
    names = (match[2] for text in texts for match in _PLACEHOLDER.finditer(text))
    return list(dict.fromkeys(filter(None, names)))


def flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every setting by dotted path, and every nested mapping before its contents."""
    for name, value in settings.items():
        yield f"{above}{name}", value
        if isinstance(value, Mapping):
            yield from flat(value, f"{above}{name}.")


def unused(settings: Mapping[str, Any], used: Iterable[str]) -> list[str]:
    """Returns the paths of the settings that are not in `used`, nor below a name in it."""
    names = set(used)
    leaves = [path for path, value in flat(settings) if not isinstance(value, Mapping)]
    parents = "{}.{}".format
    return [path for path in leaves if names.isdisjoint(itertools.accumulate(path.split("."), parents))]


def words(texts: Iterable[str], values: Mapping[str, Any]) -> list[str]:
    """Returns `texts` with placeholders filled, each as one word; a list alone becomes several words."""
    filled: list[str] = []
    for text in texts:
        alone = _PLACEHOLDER.fullmatch(text)
        value = values.get(alone[2]) if alone and alone[2] else None
        filled += map(written, value) if isinstance(value, list | tuple) else [word(text, values)]
    return filled


def word(text: str, values: Mapping[str, Any]) -> str:
    """Returns `text` with placeholders filled, if they have a value; lists are written as JSON."""

    def filled(match: re.Match[str]) -> str:
        if match[1]:
            return f"{{{match[1]}}}"
        return written(values[match[2]]) if match[2] in values else match[0]

    return _PLACEHOLDER.sub(filled, text)


def typed(text: str, values: Mapping[str, Any]) -> Any:
    """Returns the value itself if `text` is a single placeholder, else the text from `word`."""
    alone = _PLACEHOLDER.fullmatch(text)
    return values[alone[2]] if alone and alone[2] in values else word(text, values)


def written(value: Any) -> str:
    """Returns a value as an argument: scalars as Python prints them, lists and mappings in compact JSON."""
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, separators=(",", ":"), default=str)
    return str(value)


def key_of(value: Any) -> str:
    """Returns a value as a JSON key, so that flags from YAML and from JSON match."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def flags(given: Mapping[str, Mapping[str, Sequence[str]]], values: Mapping[str, Any]) -> list[str]:
    """Returns the words that the values of settings add to the line; a value without a flag adds nothing."""
    chosen = (by_value.get(key_of(values.get(name)), ()) for name, by_value in given.items())
    return words((text for texts in chosen for text in texts), values)


def path_in(texts: Sequence[str]) -> str | None:
    """Returns the first path below {workdir} in `texts`, as in `--resume={workdir}/last.pt`, or None."""
    argument = next((text for text in texts if _WORKDIR in text), None)
    return argument and argument[argument.index(_WORKDIR) :]


def processes(run: Sequence[str]) -> str | None:
    """Returns the launcher's process count in `run`, a placeholder or a number; None if it has none."""
    names = [word.rpartition("/")[2] for word in run]
    launcher = next((place for place, name in enumerate(names) if name in _LAUNCHERS), None)
    if launcher is None:
        return None
    words = [word for whole in run[launcher + 1 :] for word in whole.split("=", 1)]
    options = ((word, number) for word, number in itertools.pairwise(words) if word.startswith("-"))
    return next((n for word, n in options if word.lstrip("-") in _LAUNCHERS[names[launcher]]), None)
