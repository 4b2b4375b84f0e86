"""Shell script that repeats a command line with given settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.core.shell import quoted
from autotune.workloads.command import calls, files
from autotune.workloads.command.spec import WORKDIR, Spec
from autotune.workloads.own_file import InFile, OwnFile

TRAINED = Path("trained")


@dataclass(frozen=True)
class Script(OwnFile):
    """Script of the command line that `command_line` returns for settings."""

    spec: Spec
    directory: Path
    command_line: Callable[[Mapping[str, Any]], str]

    @property
    def format(self) -> str:
        return "shell"

    @property
    def name(self) -> str:
        return "best.sh"

    def text(self, settings: Mapping[str, Any]) -> str:
        """Returns commands that create workdir and input files, and then the command line."""
        workdir = TRAINED.absolute()
        values = calls.values_of(self.spec, settings, workdir)
        written = files.script(self.spec.files, self.directory, values, workdir)
        return f"{self._place()}{written}{self.command_line(settings)}\n"

    def _place(self) -> str:
        names = self.spec.placeholders()
        if all(WORKDIR not in names[key] for key in ("run", "flags", "environment")):
            return ""
        workdir = quoted(TRAINED.absolute())
        return f"# It trains into {workdir}: put another directory in its place.\nmkdir -p {workdir}\n"

    def trains_with(self, file: Path) -> str:
        return f"sh {quoted(file)}"

    def put_in(self, file: Path, settings: Mapping[str, Any]) -> InFile | None:
        """Returns the values for a trial's copy of `file`; None if it is not in the specification."""
        values = calls.values_of(self.spec, settings, TRAINED.absolute())
        bases = {(self.directory / own.base).resolve(): own for own in self.spec.files.values()}
        own = bases.get(file.resolve())
        return InFile(files.filled(own, values), own.names()) if own else None
