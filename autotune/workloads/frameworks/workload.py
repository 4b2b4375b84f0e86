"""A framework's trainer, created by a script or a function, as a workload."""

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field

from autotune.core import units
from autotune.core.errors import InputError
from autotune.core.settings import Setting
from autotune.core.shell import word
from autotune.inside.inbox import SITE
from autotune.inside.site import autotune_wire as wire
from autotune.workloads.base import Fit
from autotune.workloads.command import calls, line, spec, training
from autotune.workloads.command.spec import Resume, Spec, Words, named_scores
from autotune.workloads.command.workload import CommandWorkload
from autotune.workloads.frameworks.framework import Framework
from autotune.workloads.frameworks.known import FRAMEWORKS

_BUILDER = "autotune_build"  # a module in the hook's directory


class FrameworkSpec(Spec):
    """A script or function that makes a trainer."""

    kind: str = Field(description="`lightning`, `torch` or `transformers`")  # type: ignore[assignment]
    run: Words = Field((), description="the command line of a script that makes the trainer itself")
    build: str | None = Field(
        None, description="instead of `run`: a function `package.module:function` that builds what is trained"
    )
    quality: Annotated[dict[str, str] | Literal["reported"], BeforeValidator(named_scores)] = Field(
        "reported", description="as for a command, if the scores are not those that the framework logs"
    )

    def _mistakes(self) -> Iterator[str]:
        if bool(self.run) == bool(self.build):
            yield f"one of run, build, got {'both' if self.run else 'neither'}"
        module, _, function = (self.build or "module:function").partition(":")
        if not (function.isidentifier() and all(part.isidentifier() for part in module.split("."))):
            yield f"build: a function as package.module:function, got {units.quote(self.build)}"
        yield from super()._mistakes()


@dataclass(frozen=True)
class FrameworkWorkload(CommandWorkload):
    """A command in whose process settings replace the arguments of the framework's objects."""

    spec: FrameworkSpec
    framework: Framework
    ends_itself = True

    @classmethod
    def parse(cls, values: Mapping[str, Any], directory: Path) -> Self:
        framework = FRAMEWORKS[values["kind"]]
        absolute = spec.with_absolute_paths(values, directory)
        given = spec.read(absolute, FrameworkSpec)
        if given.build and not framework.builds:
            raise InputError(f"workload.build: kind {framework.kind} has none: give the script's line as run")
        run = ("python", "-m", _BUILDER, framework.kind, given.build) if given.build else given.run
        file = framework.checkpoint and f"{{{spec.WORKDIR}}}/{framework.checkpoint}"
        resume = given.resume or (Resume(file=file, arguments=()) if file else None)
        spec_ = given.model_copy(update={"run": run, "resume": resume})
        return cls(framework.kind, spec_, absolute, framework)

    @property
    def fit(self) -> Fit:
        return functools.partial(training.fit, self.spec, self.directory, objects=self.framework.objects)

    def require_unit(self, unit: str) -> None:
        if unit not in self.framework.units:
            known = " or ".join(self.framework.units)
            raise InputError(f"unit: kind {self.framework.kind} counts {known}, got {unit!r}")
        super().require_unit(unit)

    def for_trial(
        self, settings: Mapping[str, Setting], samples: int, evaluations: int, quality: str
    ) -> dict[str, Setting]:
        given = super().for_trial(settings, samples, evaluations, quality)
        return {**given, **self.framework.for_trial(settings, samples, evaluations)}

    def _used(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Adds the framework's objects to the settings in use; a build function uses every setting."""
        return (*super()._used(settings), *(settings if self.spec.build else self.framework.objects))

    def _assignments(self, settings: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
        """Adds the hook, first on PYTHONPATH, and the settings that it applies to the script, if any."""
        own = self.spec.environment.get("PYTHONPATH")
        behind = '"${PYTHONPATH:+:$PYTHONPATH}"' if own is None else word(f":{line.word(own, values)}")
        put_in = calls.put_in(settings, self.framework.objects)
        assignments = super()._assignments(settings, values)
        if not put_in and not self.spec.build:
            return assignments
        assignments.append(f"PYTHONPATH={word(str(SITE))}{behind}")
        assignments.append(f"{wire.OVERRIDES}={word(json.dumps(put_in))}")
        if self.spec.build or put_in != settings:
            assignments.append(f"{wire.SETTINGS}={word(json.dumps(dict(settings)))}")
        return assignments
