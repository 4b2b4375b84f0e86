"""The tables of what models wrote."""

from dataclasses import dataclass

NOTHING = "-"


@dataclass(frozen=True)
class Table:
    """Figures as text, row by row; the columns numbered in `numeric` are set flush right."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...] = ()
    note: str = ""
    is_detail: bool = False  # for those who want to know more


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0%}"
