"""What the user sees while a search runs: a live table on a terminal, one line per event elsewhere."""

import time
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from autotune import confirm, objective, units, view
from autotune.errors import printable
from autotune.space import Space
from autotune.trial import Measurement, Status, Throughput, Trial

_ENDED_SHOWN = 8


class Screen:
    """Listens to a search and shows it. On a terminal it redraws one table; else it prints lines."""

    def __init__(self, console: Console, space: Space, planned: int, time_s: float | None) -> None:
        self._console, self._space, self._planned = console, space, planned
        self._begun = time.monotonic()
        self._time_s = time_s
        self._running: dict[int, tuple[Trial, Mapping[str, Any]]] = {}
        self._ended: list[Trial] = []
        self._live = Live(get_renderable=self._draw, console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the terminal as it was."""
        if self._live.is_started:
            self._live.stop()

    def known(self, trials: list[Trial]) -> None:
        """The trials of an earlier run of this session."""
        self._ended += [t for t in trials if t.outcome is not None]

    def note(self, text: str) -> None:
        """A line that stays above the table."""
        self._console.print(Text(printable(text)), soft_wrap=True)

    def started(self, trial: Trial) -> None:
        self._running[trial.number] = (trial, {})
        if not self._console.is_terminal:
            what = " (baseline)" if trial.number == 0 else ""
            if trial.repeat is not None:
                what = f" (repeat of trial {trial.repeat.of})"
            elif trial.way_to is not None:
                what = f" (step of the way to trial {trial.way_to})"
            self.note(f"{self._clock()} trial {trial.number} started: {view.knobs(trial.config)}{what}")

    def progress(self, trial: Trial, report: Mapping[str, Any]) -> None:
        self._running[trial.number] = (trial, report)

    def ended(self, trial: Trial) -> None:
        self._running.pop(trial.number, None)
        if trial.outcome is not None and trial.outcome.status is not Status.INTERRUPTED:
            self._ended.append(trial)
        self.note(f"{self._clock()} trial {trial.number} {trial.outcome}: {self._figures(trial)}")

    def _clock(self) -> str:
        return f"[{units.format_seconds(time.monotonic() - self._begun):>7}]"

    def _figures(self, trial: Trial) -> str:
        if trial.outcome is not None and trial.outcome.status is not Status.COMPLETED:
            return f"{view.knobs(trial.config)}: {trial.outcome.reason}"
        m, name = trial.measurement, self._space.objective.quality
        figures = f"{view.speed(m)} samples/s, {name} {view.quality(m.quality)}, {view.memory(m)}"
        baseline = objective.baseline_of(self._ended)
        factor = objective.factor(trial, baseline) if baseline else None
        return figures + (f", {factor:.2f}x the baseline" if factor and trial.number else "")

    def _draw(self) -> Group:
        elapsed = units.format_seconds(time.monotonic() - self._begun)
        searched = sum(t.searched for t in self._ended)
        header = f"{searched} of {self._planned} trials ended, {elapsed} elapsed, {self._left()} left"
        header += f", {others}" if (others := view.besides(self._ended)) else ""
        return Group(Text(header, style="bold"), self._table(), Text(printable(self._best())))

    def _left(self) -> str:
        left = view.remaining_time(self._ended, self._planned, max(1, len(self._running)))
        limit = None if self._time_s is None else self._begun + self._time_s - time.monotonic()
        known = [max(0.0, value) for value in (left, limit) if value is not None]
        return units.format_seconds(min(known)) if known else "unknown time"

    def _table(self) -> Table:
        table = view.table(self._ended[-_ENDED_SHOWN:], self._space)
        for trial, report in self._running.values():
            table.add_row(*view.row(_so_far(trial, report), self._state(report)))
        return table

    def _state(self, report: Mapping[str, Any]) -> str:
        samples, budget = report.get("samples", 0), self._space.budget.samples_per_trial
        return f"{min(1.0, samples / budget):.0%} of {budget} samples" if samples else "starting"

    def _best(self) -> str:
        space = self._space
        baseline = objective.baseline_of(self._ended)
        found = confirm.recommended(self._ended, space)
        if baseline is None or found is None:
            return "best so far: the baseline is not measured yet"
        best = found[0]
        if best.number == baseline.number:
            return "best so far: the baseline"
        return f"best so far: trial {best.number}, {view.measured(best, self._ended, space)}"


def _so_far(trial: Trial, report: Mapping[str, Any]) -> Trial:
    """A running trial with what its last report said, to be shown in the same columns."""
    rate = report.get("throughput")
    measurement = Measurement(
        throughput=Throughput(rate, None, 0, 0.0) if rate else None,
        quality=report.get("quality"),
        peak_memory_bytes=report.get("peak_memory_bytes"),
    )
    return replace(trial, measurement=measurement)
