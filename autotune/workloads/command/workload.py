"""Workload that runs a command line."""

import functools
import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from autotune.core import units
from autotune.core.errors import InputError, did_you_mean
from autotune.core.settings import EFFECTIVE_BATCH, PROCESSES, SEED, Setting, effective_batch
from autotune.core.shell import quoted, word
from autotune.workloads import code
from autotune.workloads.base import Fit, InFile, OwnFile, Workload
from autotune.workloads.command import calls, ending, files, line, spec, training
from autotune.workloads.command.process import is_program, start
from autotune.workloads.command.spec import Spec

TRAINED = Path("trained")


@dataclass(frozen=True)
class CommandWorkload(Workload):
    """Workload that runs the command of `spec`, whose paths are absolute."""

    spec: Spec
    values: Mapping[str, Any]

    @classmethod
    def parse(cls, values: Mapping[str, Any], directory: Path) -> Self:
        """Returns the workload that `values` specify, with paths below `directory`, or raises InputError."""
        absolute = spec.with_absolute_paths(values, directory)
        return cls(spec.KIND, spec.read(absolute, Spec), absolute)

    @property
    def value(self) -> dict[str, Any]:
        return dict(self.values)

    @property
    def directory(self) -> Path:
        return Path(self.spec.directory)

    @property
    def fit(self) -> Fit:
        return functools.partial(training.fit, self.spec, self.directory)

    @property
    def preload(self) -> tuple[str, ...]:
        """Empty: the command is a separate process."""
        return ()

    @property
    def python(self) -> str | None:
        """Path of the Python at the start of the command line, else `python` of the specification."""
        first = self.spec.run[0]
        is_named = os.sep in first and Path(first).name.startswith("python")
        return str(self.directory / first) if is_named else self.spec.python

    @property
    def own_file(self) -> OwnFile:
        return Script(self)

    def complete(self, baseline: Mapping[str, Setting]) -> dict[str, Setting]:
        """Adds the number of processes if a launcher on the command line sets it."""
        given = line.processes(self.spec.run)
        if given is None or PROCESSES in baseline:
            return dict(baseline)
        if names := line.names_in([given]):
            rule = f"{{{names[0]}}} is how many processes train together"
            raise InputError(f"workload.run: {rule}; say so in roles: {{{PROCESSES}: {names[0]}}}")
        count = units.parse_whole(given)
        return dict(baseline) if count is None else {**baseline, PROCESSES: count}

    def for_trial(
        self, settings: Mapping[str, Setting], samples: int, evaluations: int, quality: str
    ) -> dict[str, Setting]:
        """Adds the trial's length, and the samples of a step, for scripts that do not report them."""
        own = {spec.TRIAL_SAMPLES: samples, spec.EFFECTIVE_BATCH: effective_batch(settings)}
        return {**settings, **own}

    @property
    def ends_itself(self) -> bool:
        """True unless the script calls `autotune.report`, and may train until `autotune.should_stop`."""
        return self.spec.quality != spec.REPORTED

    def for_training(self, settings: Mapping[str, Setting], samples: int | None) -> dict[str, Setting]:
        """Sets the length as for a trial; raises InputError if it is unknown but the command needs it."""
        given = {**super().for_training(settings, samples), spec.EFFECTIVE_BATCH: effective_batch(settings)}
        if samples is not None:
            return {**given, spec.TRIAL_SAMPLES: samples}
        if any(spec.TRIAL_SAMPLES in names for names in self.spec.placeholders().values()):
            rule = f"{{{spec.TRIAL_SAMPLES}}} is the length of the training"
            raise InputError(f"workload.run: {rule}; say it in workload.training_samples")
        return given

    def revision(self) -> str:
        bases = [self.directory / own.base for own in self.spec.files.values()]
        named = [self.directory / word for word in self.spec.run if code.may_be_the_users(Path(word))]
        files_ = [*bases, *(file for file in named if file.is_file())]
        return code.revision_of_files(self.directory, self.spec.code, files_)

    def data_fingerprint(self, settings: Mapping[str, Setting]) -> str | None:
        return code.fingerprint_of_data(self.directory, self.spec.data) if self.spec.data else None

    def training_samples(self, settings: Mapping[str, Setting]) -> int | None:
        return self.spec.training_samples

    def require_comparable(self, knobs: Collection[str], quality: str, *, minimize: bool = False) -> None:
        if self.spec.scores and quality not in self.spec.scores:
            raise InputError(
                f"objective: {quality} is not among the scores of workload.quality"
                f"{did_you_mean(quality, self.spec.scores)}"
            )

    def require_unit(self, unit: str) -> None:
        if unit != "samples" and self.spec.quality != spec.REPORTED:
            rule = "a command counts samples, unless it calls autotune.report, with quality: reported"
            raise InputError(f"unit: {rule}, got {unit!r}")

    def check(self, settings: Mapping[str, Any]) -> list[str]:
        """Checks settings, paths and files, and runs the set-up; returns a note on that."""
        self.spec.require_settings(settings, self._used(settings))
        if not self.directory.is_dir():
            raise InputError(f"workload.directory: there is no directory {self.directory}")
        if self.spec.python is not None and not os.access(self.spec.python, os.X_OK):
            raise InputError(f"workload.python: there is no program {self.spec.python}")
        values = calls.values_of(self.spec, settings, "")
        call = calls.call(self.spec, values)
        if not is_program(program := call.arguments[0], self.directory, call.environment["PATH"]):
            raise InputError(f"workload.run: there is no program {program}")
        for name, own in self.spec.files.items():
            files.text_of(name, own, self.directory, values)
        return self._set_up(values) if self.spec.setup else []

    def takes(self, name: str) -> bool:
        return not self.spec.unused({name: None}, self._used({name: None}))

    def _used(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns the settings that are used although the specification does not name them."""
        return (SEED, *EFFECTIVE_BATCH)

    def _set_up(self, values: Mapping[str, Any]) -> list[str]:
        call = calls.call(self.spec.model_copy(update={"run": self.spec.setup, "flags": {}}), values)
        begun_s = time.monotonic()
        with start(call.arguments, self.directory, call.environment, subprocess.PIPE) as process:
            output = process.stdout.read().decode(errors="replace") if process.stdout else ""
        command = " ".join(map(word, call.arguments))
        if process.returncode:
            why = ending.exit_error(process.returncode, process.pid, None, output.splitlines())
            raise InputError(f"workload.setup: {command}: {ending.describe_error(why)}")
        return [f"setup: {command} ({time.monotonic() - begun_s:.0f} s)"]

    def command_line(self, settings: Mapping[str, Any]) -> str:
        """Returns the shell line of a whole training with `settings` in the user's names and shape."""
        values = calls.values_of(self.spec, settings, TRAINED.absolute())
        if self.spec.training_samples is not None:
            values[spec.TRIAL_SAMPLES] = self.spec.training_samples
        arguments = calls.call(self.spec, values).arguments
        words = " ".join([*self._assignments(settings, values), *map(word, arguments)])
        return f"cd {quoted(self.directory)} && {words}"

    def _assignments(self, settings: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
        """Returns environment variables, with placeholders filled, as shell assignments."""
        return [f"{name}={word(line.word(text, values))}" for name, text in self.spec.environment.items()]


@dataclass(frozen=True)
class Script(OwnFile):
    """Shell script that runs the command line of a workload."""

    format = "shell"
    name = "best.sh"
    workload: CommandWorkload

    def text(self, settings: Mapping[str, Any]) -> str:
        """Returns commands that create the workdir and input files, and then the command line."""
        workload, workdir = self.workload, TRAINED.absolute()
        values = calls.values_of(workload.spec, settings, workdir)
        written = files.script(workload.spec.files, workload.directory, values, workdir)
        return f"{self._make_workdir()}{written}{workload.command_line(settings)}\n"

    def _make_workdir(self) -> str:
        names = self.workload.spec.placeholders()
        if all(spec.WORKDIR not in names[key] for key in ("run", "flags", "environment")):
            return ""
        workdir = quoted(TRAINED.absolute())
        return f"# It trains into {workdir}: put another directory in its place.\nmkdir -p {workdir}\n"

    def trains_with(self, file: Path) -> str:
        return f"sh {quoted(file)}"

    def command(self, settings: Mapping[str, Any]) -> str | None:
        """Returns the command line for a shell; None if files have to be written first."""
        spec_, directory = self.workload.spec, self.workload.directory
        if spec_.files or self._make_workdir():
            return None
        text = self.workload.command_line(settings)
        if spec_.python is None and spec_.run[0] in {"python", "python3"}:
            text = text.replace(f" {word(sys.executable)} ", f" {spec_.run[0]} ", 1)
        here = f"cd {quoted(directory)} && "
        return text.removeprefix(here) if directory.resolve() == Path.cwd() else text

    def put_in(self, file: Path, settings: Mapping[str, Any]) -> InFile | None:
        """Returns the values for a trial's copy of `file`; None if it is not in the specification."""
        values = calls.values_of(self.workload.spec, settings, TRAINED.absolute())
        for own in self.workload.spec.files.values():
            if (self.workload.directory / own.base).resolve() == file.resolve():
                return InFile(files.filled(own, values), own.names())
        return None
