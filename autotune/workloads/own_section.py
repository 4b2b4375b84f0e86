"""A workload's own section of a session's report, such as what its compared models have written."""

from collections.abc import Sequence
from typing import Protocol


class OwnTable(Protocol):
    """Figures as text, row by row; the columns numbered in `numeric` are set flush right."""

    @property
    def title(self) -> str: ...

    @property
    def head(self) -> Sequence[str]: ...

    @property
    def rows(self) -> Sequence[Sequence[str]]: ...

    @property
    def numeric(self) -> Sequence[int]: ...

    @property
    def note(self) -> str:
        """Returns what a reader has to know of the figures, or nothing."""

    @property
    def is_detail(self) -> bool:
        """Says that the page folds the table, and that the Markdown leaves it out."""


class OwnSection(Protocol):
    """The section: a dataclass, whose fields are in the report's JSON."""

    @property
    def title(self) -> str: ...

    @property
    def tables(self) -> Sequence[OwnTable]: ...

    def html(self) -> str:
        """Returns what the page shows below the tables, with everything from outside escaped."""
