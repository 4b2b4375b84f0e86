"""The command line of a trainer that scores a model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from autotune.core.settings import Setting


class Program(Protocol):
    """A trainer that can be called without the tuner."""

    def evaluate(self, workdir: Path, settings: Mapping[str, Setting], reports: Path) -> list[str]:
        """The command that scores the best checkpoint in `workdir` on the test split.

        It writes what the model has written to `reports`, for `Workload.report_section`, and prints a JSON
        object, whose numbers are scores, but that `studies`, `seconds`, `reports_per_s` and
        `peak_memory_bytes` are what writing them took, and `parameters` how many the model has.
        `<score>_items` are numbers whose mean the score is, one a study, and `collapsed` says that the model
        writes the same whatever it sees. A score is named as in the records of evaluations, but for a `val_`
        before it.
        """
