"""Runs command lines of a training with changed settings, each in a view of its own."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.core.errors import InputError
from autotune.core.settings import Setting
from autotune.inside.site import autotune_wire as wire
from autotune.probe import effects, options, watching
from autotune.probe.options import Option
from autotune.probe.watching import Watched
from autotune.space.naming import nest
from autotune.workloads.command import files, view
from autotune.workloads.command.process import is_program
from autotune.workloads.in_place import Document

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)  # before the program: an environment variable
_LONGEST_START_S = 1800.0  # until the first step: a script may load and tokenize its data
_SHORTEST_START_S, _STARTS = 60.0, 3.0  # of later runs, the second in multiples of the first run's start


@dataclass(frozen=True)
class CommandLine:
    """A command line, and changes to its training that are not on the line."""

    words: tuple[str, ...]
    inside: Mapping[str, Setting] = field(default_factory=dict)  # arguments that the hook replaces, by path
    files: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)  # values in files, by path
    seed: int = 0  # added to every seed of the script

    def with_value(self, option: Option, value: Setting) -> "CommandLine":
        if option.file:
            values = {**self.files.get(option.file, {}), option.name: value}
            return replace(self, files={**self.files, option.file: values})
        if option.by_value:
            return replace(self, words=(*self.words, *dict(option.by_value)[str(value)].split()))
        if option.is_inside:
            return replace(self, inside={**self.inside, option.name: value})
        text = None if option.is_switch and value in (False, None) else str(value)
        return replace(self, words=tuple(options.put(self.words, option, text)))


class Prober:
    """Runs command lines, each in a new view below `place`; raises InputError if there is no such program."""

    def __init__(
        self, words: Sequence[str], directory: Path, place: Path, say: Callable[[str], None]
    ) -> None:
        self._place, self.say = place, say
        rest, self.environment = list(words), dict[str, str]()
        while rest and (given := _ASSIGNMENT.fullmatch(rest[0])):
            self.environment[given[1]] = given[2]
            del rest[0]
        self.line, self.directory = CommandLine(tuple(rest)), directory.resolve()
        if not is_program(name := next(iter(rest), ""), self.directory, self.environment.get("PATH")):
            raise InputError(
                f"the command line must begin with a program, got {name!r}: not found, or not executable"
            )
        self._start_s = _LONGEST_START_S
        self._left_out: set[str] = set()

    def run(
        self, line: CommandLine, is_enough: effects.Stop, most_s: float, start_s: float | None = None
    ) -> Watched:
        """Runs a command line for `most_s` from its first step, which must come within `start_s`."""
        place = Path(tempfile.mkdtemp(dir=self._place))
        try:
            made = view.make(self.directory, place)
            for file, values in line.files.items():
                text = Document.read(self.directory / file).replaced(values).text
                (made / file).unlink()
                (made / file).write_text(text, encoding="utf-8")
            variables = {**self.environment, wire.SEED: str(line.seed)}
            if line.inside:
                variables[wire.OVERRIDES] = json.dumps(nest(line.inside))
            longest_s = self._start_s if start_s is None else start_s
            seen = watching.watch(
                line.words, (place, made), variables, is_enough, most_s, start_s=longest_s, say=self.say
            )
            wrote = [path for one in seen.wrote if (path := Path(one)).is_relative_to(made)]
            tables = [path for path in wrote if path.suffix in (".csv", ".jsonl") and path.is_file()]
            texts = {str(path.relative_to(made)): path.read_text(errors="replace") for path in tables}
        finally:
            shutil.rmtree(place, ignore_errors=True)  # follows no link in it, and changes no mode behind one
        if seen.steps and self._start_s == _LONGEST_START_S:
            self._start_s = max(_SHORTEST_START_S, _STARTS * seen.start_s)
        known = [*seen.options, *self._of_files(".yaml", ".yml", ".json")] or self._of_files(".py")
        return replace(
            seen,
            options=tuple(options.known(known)),
            wrote=tuple(str(path.relative_to(made)) for path in wrote),
            tables=texts,
        )

    def _of_files(self, *suffixes: str) -> list[Option]:
        """Returns the settings in the files on the command line that have one of the suffixes.

        Leaves out a file that cannot be filled in, one that a view has only behind a link, and one that holds
        a secret, which is said once.
        """
        found: list[Option] = []
        named = [word.rpartition("=")[2] for word in self.line.words[1:]]
        # A script reads a file of constants that is named behind it, so the last one counts.
        for file in reversed(named) if ".py" in suffixes else named:
            path = self.directory / file
            if not (file.endswith(suffixes) and os.path.isfile(path)):  # noqa: PTH113 - may be too long for a path
                continue
            parents = [self.directory / one for one in Path(file).parents][:-1]
            if Path(file).is_absolute() or ".." in Path(file).parts or any(map(view.is_link, parents)):
                continue
            try:
                document = Document.read(path)
            except InputError:
                continue
            try:
                files.refuse_secrets(document)
            except InputError as error:
                if file not in self._left_out:
                    self.say(f"  the values in {file} stay: {error}")
                self._left_out.add(file)
            else:
                found += options.of_file(file, document.root.data)
        return found
