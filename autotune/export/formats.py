"""Every format by its name, and which of them a workload has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotune.core.errors import InputError, instead
from autotune.export import lightning, own, plain, transformers
from autotune.export.winner import Exported, Winner
from autotune.workloads.base import Workload


@dataclass(frozen=True)
class Format:
    """What `render` makes a file of, usually called best.`suffix`; with `{file}` in what `reads` it."""

    render: Callable[[Winner], Exported]
    suffix: str
    reads: str = ""

    @property
    def is_own(self) -> bool:
        """Whether it is the trainer's own config or command line."""
        return self.render is own.render


FORMATS: Mapping[str, Format] = {
    "r2gen": Format(own.render, "yaml"),
    lightning.NAME: Format(lightning.render, "yaml", "a LightningCLI: python SCRIPT fit --config {file}"),
    transformers.NAME: Format(
        transformers.render,
        "json",
        "HfArgumentParser(TrainingArguments).parse_json_file('{file}', allow_extra_keys=True)",
    ),
    "shell": Format(own.render, "sh"),
    "yaml": Format(plain.as_yaml, "yaml"),
    "json": Format(plain.as_json, "json"),
}
_OF_ONE_KIND = ("r2gen", "shell")


def named(name: str | None, workload: Workload) -> Format:
    """The format called `name`; the workload's own where it is None.

    Raises InputError where there is no such format, or it is another workload's.
    """
    if name is None:
        return FORMATS[workload.own_file.format]
    if name not in FORMATS:
        raise InputError(f"--format: no such format: got {name!r}{instead(name, list(FORMATS))}")
    if name in _OF_ONE_KIND and name != workload.own_file.format:
        had = ", ".join(one for one in FORMATS if one not in _OF_ONE_KIND or one == workload.own_file.format)
        raise InputError(f"--format {name}: the workload {workload.entry_point} has no such file, but {had}")
    return FORMATS[name]
