"""A file that repeats a training without the tuner: a trainer's own config, or a script."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml


class InFile(NamedTuple):
    """Values by path for a file, and the `names` of the settings that they come from."""

    values: Mapping[str, Any]
    names: Sequence[str]


class OwnFile:
    """Settings as plain YAML; the default for workloads without a config format."""

    @property
    def format(self) -> str:
        """Default export format."""
        return "yaml"

    @property
    def name(self) -> str:
        """Default file name."""
        return "best.yaml"

    def text(self, settings: Mapping[str, Any]) -> str:
        """Returns the file's text; `settings` are in the user's names and shape."""
        return yaml.safe_dump(dict(settings), sort_keys=False)

    def recognises(self, values: Mapping[str, Any]) -> bool:
        """Returns True if a file with these `values` is such a file, which suffices for a training."""
        del values
        return False

    def trains_with(self, file: Path) -> str | None:
        """Returns the command line that trains with `file`; None if unknown."""
        del file
        return None

    def put_in(self, file: Path, settings: Mapping[str, Any]) -> InFile | None:
        """Returns a trial's values for the user's `file`; None if the workload does not write it."""
        del file, settings
        return None
