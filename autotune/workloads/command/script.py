"""A shell script that runs the command line again, with settings in it."""

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
    """Runs what `command_line` makes of settings; `spec` is the command's, run in `directory`."""

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
        """The command line, behind what makes the directory it trains into and the files that it reads."""
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
        """What the specification puts into a trial's copy of `file`."""
        values = calls.values_of(self.spec, settings, TRAINED.absolute())
        bases = {(self.directory / own.base).resolve(): own for own in self.spec.files.values()}
        own = bases.get(file.resolve())
        return InFile(files.filled(own, values), own.names()) if own else None
