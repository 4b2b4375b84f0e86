"""Interface of a trainer's scoring program."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from autotune.core.settings import Setting


class Program(Protocol):
    """Command-line trainer, callable without the tuner."""

    def evaluate(self, workdir: Path, settings: Mapping[str, Setting], reports: Path) -> list[str]:
        """Returns the command that scores the best checkpoint in `workdir` on the test split.

        The command writes the model's outputs to `reports`, for `Workload.report_section`, and prints a JSON
        object of scores, named as in evaluation records without `val_`. Other keys are costs (`studies`,
        `seconds`, `reports_per_s`, `peak_memory_bytes`), `parameters` (count), `<score>_items` (one value per
        study, whose mean is the score), and `collapsed` (the output does not depend on the input).
        """
