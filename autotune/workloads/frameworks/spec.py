"""Specification of a framework's trainer in a search space: that of a command, or a function."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from autotune.core import units
from autotune.workloads.command import spec
from autotune.workloads.command.spec import Resume, Spec, Words, named_scores
from autotune.workloads.frameworks.framework import Framework

_BUILDER = "autotune_build"  # a module in the hook's directory


class FrameworkSpec(Spec):
    """A script or function that makes a trainer."""

    kind: str = Field(description="`lightning`, `torch` or `transformers`")  # type: ignore[assignment]
    run: Words = Field((), description="the command line of a script that makes the trainer itself")
    build: str | None = Field(
        None, description="instead of `run`: a function `package.module:function` that builds what is trained"
    )
    quality: Annotated[dict[str, str] | Literal["reported"], BeforeValidator(named_scores)] = Field(
        "reported", description="where the scores are not those that the framework logs: as of a command"
    )

    def _mistakes(self) -> Iterator[str]:
        if bool(self.run) == bool(self.build):
            yield f"one of run, build: got {'both' if self.run else 'neither'}"
        module, _, function = (self.build or "module:function").partition(":")
        if not (function.isidentifier() and all(part.isidentifier() for part in module.split("."))):
            yield f"build: a function as package.module:function: got {units.quote(self.build)}"
        yield from super()._mistakes()


def read(framework: Framework, values: Mapping[str, Any]) -> FrameworkSpec:
    """Returns the completed specification in `values`; raises InputError with every mistake, in one line."""
    read_ = spec.read(values, FrameworkSpec)
    run = ("python", "-m", _BUILDER, framework.kind, read_.build) if read_.build else read_.run
    file = framework.checkpoint and Resume(file=f"{{{spec.WORKDIR}}}/{framework.checkpoint}", arguments=())
    return read_.model_copy(update={"run": run, "resume": read_.resume or file or None})
