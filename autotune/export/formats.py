"""Export formats by name, and their rendering."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import yaml

from autotune.core.errors import InputError, instead, printable
from autotune.export import frameworks
from autotune.export.winner import Exported, Values, Winner, commented
from autotune.workloads.base import Workload

EVIDENCE = "_autotune"  # key of the evidence in JSON, which has no comments


@dataclass(frozen=True)
class Format:
    """Format of an exported file."""

    suffix: str  # the default name is best.`suffix`
    values: Callable[[Winner], Values] | None = None  # None: the file of the workload's own trainer
    reads: str = ""  # call that reads the file, with the placeholder {file}

    @property
    def is_own(self) -> bool:
        """Returns True for the trainer's own config or command line."""
        return self.values is None

    def render(self, winner: Winner) -> Exported:
        """Returns the file, evidence included; raises InputError if the format can express no setting."""
        if self.values is None:
            return Exported(winner.comment + winner.workload.own_file.text(winner.settings))
        values, unsaid = self.values(winner)
        if self.suffix == "json":
            evidence = {name: printable(fact) for name, fact in winner.evidence.items()}
            notes = {**evidence, **({"not said": unsaid} if unsaid else {})}
            return Exported(json.dumps({**values, EVIDENCE: notes}, indent=2) + "\n", unsaid)
        head = ("what this file has no place for:", *(f"  {line}" for line in unsaid)) if unsaid else ()
        text = winner.comment + commented(head) + yaml.safe_dump(dict(values), sort_keys=False)
        return Exported(text, unsaid)


def _as_they_are(winner: Winner) -> Values:
    return Values(winner.settings)


FORMATS: Mapping[str, Format] = {
    "r2gen": Format("yaml"),
    "lightning": Format("yaml", frameworks.lightning, "a LightningCLI: python SCRIPT fit --config {file}"),
    "transformers": Format(
        "json",
        frameworks.transformers,
        "HfArgumentParser(TrainingArguments).parse_json_file('{file}', allow_extra_keys=True)",
    ),
    "shell": Format("sh"),
    "yaml": Format("yaml", _as_they_are),
    "json": Format("json", _as_they_are),
}


def named(name: str | None, workload: Workload) -> Format:
    """Returns the format called `name`, by default the workload's own.

    Raises InputError if there is no such format, or if it belongs to another workload.
    """
    own = workload.own_file.format
    if name is None:
        return FORMATS[own]
    if name not in FORMATS:
        raise InputError(f"--format: no such format: got {name!r}{instead(name, list(FORMATS))}")
    offered = [one for one, form in FORMATS.items() if one == own or not form.is_own]
    if name not in offered:
        raise InputError(
            f"--format {name}: the workload {workload.entry_point} has no such file, but {', '.join(offered)}"
        )
    return FORMATS[name]
