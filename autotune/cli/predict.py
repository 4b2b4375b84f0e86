"""The command `predict`, which forecasts which settings fit into the memory of other GPUs."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from autotune.core import units
from autotune.core.errors import InputError, printable
from autotune.display import events, snapshot, view
from autotune.judging.accounts import memory_forecast
from autotune.judging.accounts.memory_forecast import MemoryForecast
from autotune.judging.decisions import confirm
from autotune.reports import elsewhere as forecasts
from autotune.storage.store import StoredSession

FORMAT = 1


def predict(root: Path, memory: str | None, *, as_json: bool) -> int:
    """Prints which of the recommended settings fit into each memory size; returns the exit code."""
    sizes: Sequence[int] = memory_forecast.SIZES_BYTES
    if memory is not None:
        try:
            sizes = tuple(dict.fromkeys(units.size_bytes(part) for part in memory.split(",")))
        except InputError as error:
            raise InputError(f"--memory: sizes such as 8GiB,24GiB: {error}") from None
    history = snapshot.take(StoredSession.open(root), root).history
    recommended = confirm.recommended(history)
    if recommended is None:
        raise InputError(f"session {root}: nothing to predict from: the baseline has not completed")
    forecast = memory_forecast.forecast(recommended[0], history, sizes)
    if as_json:
        print(events.line({"format": FORMAT, "session": str(root), **vars(forecast)}))
    else:
        _print(forecast)
    return 0


def _print(forecast: MemoryForecast) -> None:
    console, table = Console(), forecasts.table(forecast)
    console.print(f"trial {forecast.trial}: {view.knobs(forecast.config)}", markup=False, highlight=False)
    grid = Table(box=None, padding=(0, 1, 0, 0), header_style="")
    for place, name in enumerate(table.head):
        grid.add_column(name, justify="right" if place in table.numeric else "left")
    for row in table.rows:
        grid.add_row(*map(printable, row))
    console.print(grid)
    for line in forecasts.notes(forecast):
        console.print(line, markup=False, highlight=False)
