"""A workload's own section of a session's report: what its compared models have written, say."""

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
        """What a reader has to know of the figures, or nothing."""

    @property
    def is_detail(self) -> bool:
        """Folds the table on the page, and leaves it out of the Markdown."""


class OwnSection(Protocol):
    """The section. It is a dataclass, whose fields are in the report's JSON."""

    @property
    def title(self) -> str: ...

    @property
    def tables(self) -> Sequence[OwnTable]: ...

    def html(self) -> str:
        """Returns what the page shows below the tables, with everything from outside escaped."""
