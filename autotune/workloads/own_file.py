"""The file that trains with settings again without the tuner: a trainer's own config, or a script."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml


class InFile(NamedTuple):
    """What is put into a file: `values` by path, made of the settings that have these `names`."""

    values: Mapping[str, Any]
    names: Sequence[str]


class OwnFile:
    """The settings as YAML, which no program is known to read. Other workloads say more by overriding."""

    @property
    def format(self) -> str:
        """The export format that is taken where the user asks for none."""
        return "yaml"

    @property
    def name(self) -> str:
        """What the file is usually called."""
        return "best.yaml"

    def text(self, settings: Mapping[str, Any]) -> str:
        """The file's text; `settings` are in the user's names and shape."""
        return yaml.safe_dump(dict(settings), sort_keys=False)

    def recognises(self, values: Mapping[str, Any]) -> bool:
        """Whether a file with these `values` is one, so that a training needs nothing else."""
        del values
        return False

    def trains_with(self, file: Path) -> str | None:
        """The command line that trains with `file`; None where none is known."""
        del file
        return None

    def put_in(self, file: Path, settings: Mapping[str, Any]) -> InFile | None:
        """What a trial puts into `file`, one of the user's own; None where the workload does not know it."""
        del file, settings
        return None
