"""Text and tables in Markdown, whatever the source of their words. Pure."""

import html
import re
from collections.abc import Sequence

from autotune.core.errors import printable

_SPECIAL = re.compile(r"([\\`*_\[\]|~#!@$])")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table, line by line; every column but the first is set flush right."""
    ruler = ["---", *(["---:"] * (len(headings) - 1))]
    lines = [[text(cell) for cell in headings], ruler, *([text(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def text(text: str) -> str:
    """`text` from any source, as text: nothing in it is markup, or ends a line or a cell of a table."""
    return _SPECIAL.sub(r"\\\1", html.escape(printable(text), quote=False))
