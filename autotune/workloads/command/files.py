"""The user's files that a command reads, filled with a trial's settings."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from autotune.core import files, secrecy
from autotune.core.errors import InputError
from autotune.core.shell import quoted
from autotune.workloads.command import line
from autotune.workloads.in_place import Document, form_of
from autotune.workloads.readers import steps

# As in `login(key="...")`, `{"key": "..."}`, `environ["KEY"] = "..."` and `key: str = "..."`, in comments and
# texts, too. A class named Token may have a docstring in the line after its colon.
_NAMED_TEXT = re.compile(
    r"""(?P<name>[\w-]+)(?:["']\]?\s*[:=]\s*|[ \t]*(?::[ \t]*[\w.[\]|, \t]+)?:?=\s*)"""
    r"""(?:[\w.]+\s*=\s*)*\(?\s*"""
    r"""[A-Za-z]{0,2}(?P<quote>"{3}|'{3}|["'])(?P<text>[^"'\n]*\w[^"'\n]*)(?P=quote)"""
)


class FilledFile(BaseModel):
    """A file that is written for every trial: `base`, with the `values` at their paths replaced."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str = Field(description="the user's own YAML, JSON or Python, relative to `directory`")
    values: dict[str, Any] = Field(
        alias="set",
        description="by its path: a value, which may be a setting in braces, or {setting: value}, which is "
        "true if the setting has that value, or one of a list of values, and false otherwise",
    )

    @property
    def is_script(self) -> bool:
        """True for Python: a copy is beside the original, where the script finds its modules and files."""
        return Path(self.base).suffix.lower() == ".py"

    def path(self, name: str, workdir: Path) -> str:
        """Returns the path of a trial's copy; that of a script is relative to where the command runs."""
        base = Path(self.base)
        return str(base.with_suffix(".tuned.py") if self.is_script else workdir / f"{name}{base.suffix}")

    def names(self) -> list[str]:
        """Returns the placeholders in the values, settings included."""
        names: list[str] = []
        for value in self.values.values():
            if isinstance(value, Mapping):
                names += map(str, value)
            else:
                texts = value if isinstance(value, list) else [value]
                names += line.names_in(text for text in texts if isinstance(text, str))
        return list(dict.fromkeys(names))

    def mistakes(self) -> Iterator[str]:
        """Yields mistakes that do not depend on the contents of the `base` file."""
        try:
            form_of(Path(self.base))
        except InputError as error:
            yield f"base: {error}"
        if self.is_script and (Path(self.base).is_absolute() or ".." in Path(self.base).parts):
            yield "base: a Python file must be in the directory in which the command runs"
        for path, value in self.values.items():
            try:
                steps(path)
            except InputError as error:
                yield f"set: {error}"
            if isinstance(value, Mapping) and len(value) != 1:
                yield f"set.{path}: a value, or {{setting: value}}, got {len(value)} settings"


def text_of(name: str, own: FilledFile, directory: Path, values: Mapping[str, Any]) -> str:
    """Returns the file `name` for a trial; raises InputError if it cannot be filled, or holds a secret."""
    base = directory / own.base
    try:
        filled_in = Document.read(base).replaced(filled(own, values))
        refuse_secrets(filled_in)
    except InputError as error:
        raise InputError(f"workload.files.{name}: {base}: {error}") from None
    return filled_in.text


def refuse_secrets(document: Document) -> None:
    """Raises InputError if a file holds a secret, a script in any line."""
    why = "it is written for every trial"
    if document.file.suffix.lower() != ".py":
        secrecy.refuse_secrets({"": document.root.data}, why)
        return
    hide = secrecy.hider(os.environ)
    for number, text in enumerate(document.text.splitlines(), start=1):
        if hide(text) != text:
            raise InputError(f"{why}: line {number}: looks like a key or a password")
    for match in _NAMED_TEXT.finditer(document.text):
        number = document.text.count("\n", 0, match.start("text")) + 1
        secrecy.refuse_secrets({f"line {number}": {match["name"]: match["text"]}}, why)


def filled(own: FilledFile, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the file's new values by path, with placeholders filled."""
    return {path: _value(value, values) for path, value in own.values.items()}


def _value(given: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(given, Mapping):
        [(name, wanted)] = given.items()
        some = wanted if isinstance(wanted, list) else [wanted]
        return line.key_of(values.get(name)) in map(line.key_of, some)
    if isinstance(given, list):
        return [_value(one, values) for one in given]
    return line.typed(given, values) if isinstance(given, str) else given


def paths(own: Mapping[str, FilledFile], workdir: Path) -> dict[str, str]:
    return {name: file.path(name, workdir) for name, file in own.items()}


def write(own: Mapping[str, FilledFile], directory: Path, values: Mapping[str, Any], workdir: Path) -> None:
    for name, path in paths(own, workdir).items():
        place = directory / path
        if own[name].is_script and not place.parent.resolve().is_relative_to(directory.resolve()):
            raise InputError(f"workload.files.{name}: {own[name].base}: its directory is a link, or left out")
        files.write(place, text_of(name, own[name], directory, values))


def script(own: Mapping[str, FilledFile], directory: Path, values: Mapping[str, Any], workdir: Path) -> str:
    """Returns shell commands that write the files `own` as for a trial in `workdir`."""
    commands = "" if all(file.is_script for file in own.values()) else f"mkdir -p {quoted(workdir)}\n"
    for name, path in paths(own, workdir).items():
        text, end = text_of(name, own[name], directory, values), "END"
        while end in text:
            end += "_"
        text += "" if text.endswith("\n") else "\n"
        commands += f"cat > {quoted(directory / path)} <<'{end}'\n{text}{end}\n"
    return commands
