"""Forecasts for GPUs with other memory sizes as text, for the report and for `predict`. Pure."""

from collections.abc import Iterator

from autotune.core import units
from autotune.core.settings import ACCUMULATION, LEARNING_RATE, MICRO_BATCH, PRECISION, PRECISIONS
from autotune.display import words
from autotune.judging.accounts.memory_forecast import MemoryForecast
from autotune.reports.plot import Table

TITLE = "On another GPU"
_HEAD = ("memory", "micro-batch", "accumulation", "effective batch", "learning rate", "predicted peak")


def table(forecast: MemoryForecast) -> Table:
    """Returns a row for each memory size: the configuration to run there, if known."""
    rows: list[tuple[str, ...]] = []
    for fit in forecast.fits:
        memory, peak = units.format_bytes(fit.memory_bytes), fit.peak
        if fit.config is None or peak is None:
            rows.append((memory, *[words.NOTHING] * (len(_HEAD) - 2), fit.reason.partition(":")[0]))
            continue
        batch = str(fit.effective_batch_size) + ("" if fit.keeps_batch else ", changed")
        size, accumulation, rate = (
            words.setting(fit.config[name]) if name in fit.config else words.NOTHING
            for name in (MICRO_BATCH, ACCUMULATION, LEARNING_RATE)
        )
        expected = units.format_bytes(peak.expected_bytes)
        interval = units.format_bytes_interval(peak.low_bytes, peak.high_bytes, expected)
        rows.append((memory, size, accumulation, batch, rate, f"{expected} ({interval})"))
    return Table(_HEAD, tuple(rows), numeric=(0, 1, 2, 3, 4))


def notes(forecast: MemoryForecast) -> Iterator[str]:
    """Yields notes on the meaning of the table, and on its gaps."""
    yield (
        f"The settings of trial {forecast.trial}, with the largest micro-batch that fits: the upper end of "
        f"its predicted peak is within {forecast.memory_fraction:.0%} of the memory. Speed is not predicted."
    )
    for reason in dict.fromkeys(fit.reason for fit in forecast.fits if fit.reason):
        sizes = (units.format_bytes(fit.memory_bytes) for fit in forecast.fits if fit.reason == reason)
        yield f"{', '.join(sizes)}: {reason}."
    if forecast.is_rising:
        trial = forecast.trial
        yield f"The peak of trial {trial} was still rising when it ended: a longer training takes more."
    if not forecast.is_of_gpu:
        yield "Measured without a GPU: these figures are memory of processes on the host."
    if any(fit.config is not None and not fit.keeps_batch for fit in forecast.fits):
        other = f"another effective batch than trial {forecast.trial}'s"
        yield f'"changed" marks {other}; its quality was not measured.'
    precision = PRECISIONS.get(str(forecast.config.get(PRECISION)))
    if precision and forecast.is_of_gpu and (needed := precision.needs.compute_capability):
        yield f"{forecast.config[PRECISION]} needs compute capability {'.'.join(map(str, needed))} or newer."
