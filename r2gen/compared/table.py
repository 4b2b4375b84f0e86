"""Tables of a comparison of generated reports."""

from dataclasses import dataclass

NOTHING = "-"


@dataclass(frozen=True)
class Table:
    """Figures as text, row by row; the columns numbered in `numeric` are right-aligned."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...] = ()
    note: str = ""
    is_detail: bool = False  # for readers who want more detail


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0%}"
