"""A workload's own section of a session's report, such as the outputs of compared models."""

from collections.abc import Sequence
from typing import Protocol


class OwnTable(Protocol):
    """Table of text cells; the columns with an index in `numeric` are right-aligned."""

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
        """Explanation of the figures, or nothing."""

    @property
    def is_detail(self) -> bool:
        """True if the page folds the table and the Markdown omits it."""


class OwnSection(Protocol):
    """Section of a report; a dataclass, whose fields go into the report's JSON."""

    @property
    def title(self) -> str: ...

    @property
    def tables(self) -> Sequence[OwnTable]: ...

    def html(self) -> str:
        """Returns the HTML below the tables, with untrusted text escaped."""
