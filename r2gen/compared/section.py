"""The section on generated reports within a comparison of models."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from r2gen.compared import answers, entries, figures, reading
from r2gen.compared.entries import Shown
from r2gen.compared.table import Table


@dataclass(frozen=True)
class Section:
    """Tables and example studies of the compared models' reports."""

    title: ClassVar[str] = "Reports"
    tables: tuple[Table, ...]
    studies: tuple[Shown, ...]

    def html(self) -> str:
        """Returns the studies side by side, for a page that has the report's style sheet."""
        from r2gen.compared import page  # noqa: PLC0415 - only a page needs templates and images

        return page.side_by_side(self.studies)


def section(place: Path, reports: Mapping[str, Path], samples: int) -> Section | None:
    """Returns the section with `samples` example studies; None if there are no reports.

    `reports` maps model names to files of `evaluate --reports`; `place` holds the answers of blind readers.
    Raises InputError if a file cannot be read.
    """
    models = {name: written for name, file in reports.items() if (written := entries.read(file))}
    if not models:
        return None
    tables, readers = [figures.figures(models), figures.findings(models)], answers.read(place)
    if readers:
        tables += [reading.marks(readers, models), reading.notes(readers, models)]
    return Section(
        tuple(table for table in tables if table.rows or table.note), entries.spread(models, samples)
    )
