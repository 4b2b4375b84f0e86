"""Shows a running search: a live picture on a terminal, otherwise one line per event, or JSON."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

from rich.console import Console

from autotune.core import units
from autotune.core.settings import LENGTH
from autotune.core.trial import Status, Trial, TrialKind
from autotune.display import draw, estimate, events, live, rows, view, words
from autotune.display.estimate import Remaining
from autotune.display.live import LiveView
from autotune.display.snapshot import RunningTrial, Snapshot
from autotune.judging.decisions import confirm, pilot
from autotune.judging.decisions.history import History
from autotune.searcher.ports import Listener
from autotune.space.space import Space
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport

_ESTIMATE_S = 10.0  # with a thousand trials it takes a tenth of a second
_PROGRESS_S = 5.0  # between two events of a trial in the same phase


class Screen(Listener, AbstractContextManager["Screen"]):
    """Listens to a search, keeps its state, and prints a line for every event."""

    def __init__(
        self, console: Console, begun: Snapshot, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._monotonic = console, clock
        self._begun, self._begun_s = begun, clock()  # the search before its first trial
        self._ended: dict[int, Trial] = {}
        self._running: dict[int, RunningTrial] = {}
        self._best, self._history = begun.best, History((), begun.space)
        self._slots = 1
        self._estimate: tuple[float, Remaining | None] | None = None  # with the time spent when it was made

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the terminal as it was."""

    def note(self, text: str) -> None:
        """Shows a message about the search as a whole."""
        live.say(self._console, text)

    def conclude(self, lines: Sequence[str], facts: Mapping[str, Any]) -> None:
        """Shows the result, as text or as figures."""
        del facts
        for line in lines:
            self.note(line)

    def restore(self, trials: Sequence[Trial]) -> None:
        """Takes the trials of an earlier run of this session."""
        self._ended |= {t.number: t for t in trials if t.outcome is not None}
        self._history = pilot.settled(History([*self._ended.values()], self.space))
        self._update_best()

    def started(self, trial: Trial) -> None:
        phase = Phase.START if self._begun.cluster is None else Phase.WAITING
        self._running[trial.number] = RunningTrial(trial, phase, 0.0)
        self._slots = max(self._slots, len(self._running))
        self._estimate = None
        if phase is Phase.START:
            self.runs(trial)

    def runs(self, trial: Trial) -> None:
        """Shows that a trial has started; on a cluster, called once a node runs it."""
        role, resized = "", {**self.space.baseline_config, LENGTH: trial.config.get(LENGTH)}
        if trial.number == 0:
            role = " (baseline)"
        elif trial.kind is TrialKind.SEARCHED and trial.config == resized:
            role = " (the baseline, shorter)"
        self.note(
            f"{self._clock()} trial {trial.number} started{view.where(trial)}: {view.name(trial)}{role}"
        )

    def progress(self, trial: Trial, report: TrialReport) -> None:
        before, so_far = self._running.get(trial.number), replace(trial, measurement=report.measurement)
        self._running[trial.number] = RunningTrial(so_far, report.phase, report.elapsed_s)
        if before is not None and before.phase == Phase.WAITING:
            self.runs(so_far)

    def ended(self, trial: Trial) -> None:
        self._running.pop(trial.number, None)
        if trial.outcome is not None and trial.outcome.status is not Status.INTERRUPTED:
            self._ended[trial.number] = trial
            self._history = self._history.after(trial)
            if trial.original == 0:  # the other trials do not change the space
                self._history = pilot.settled(self._history)
        self._update_best()
        self._show_end(trial)

    def _show_end(self, trial: Trial) -> None:
        if trial.outcome is not None and trial.outcome.status is not Status.COMPLETED:
            figures = f"{view.knobs(trial.config)}, {trial.outcome.reason}"
        elif trial.kind is TrialKind.RACE:
            figures = view.race_result(trial)
        else:
            row, target = rows.row(trial, self._history), self.space.objective.target
            figures = row.line(self.space.unit, self.space.objective.quality)
            if row.factor and trial.original:
                reaches = "" if target is None else "reaches the target "
                figures += f", {reaches}{words.factor(row.factor)} as fast as the baseline"
            if row.reason:
                figures += f"; cannot win: {row.reason}"
        self.note(f"{self._clock()} trial {trial.number} {trial.outcome}: {figures}")

    def _clock(self) -> str:
        return f"[{units.format_seconds(self._spent_s()):>7}]"

    def _update_best(self) -> None:
        self._best = confirm.recommended(self._history_with_running())
        self._estimate = None

    @property
    def space(self) -> Space:
        """The space as settled by the pilot."""
        return self._history.space

    def _history_with_running(self) -> History:
        history = self._history
        for running in list(self._running.values()):
            history = history.after(running.trial)
        return history

    def snapshot(self) -> Snapshot:
        """Returns the search as it is now; the time left is estimated after changes and every ten seconds."""
        plan = replace(self._begun.plan, spent_s=self._spent_s())
        last = self._estimate  # another thread may reset it
        if last is None or plan.spent_s - last[0] > _ESTIMATE_S:
            running_s = {r.trial.number: r.seconds for r in list(self._running.values())}
            left = estimate.remaining(self._history_with_running(), running_s, plan, self._slots)
            self._estimate = last = plan.spent_s, left
        return replace(
            self._begun,
            space=self.space,
            plan=plan,
            trials=tuple(self._ended.values()),
            running=tuple(self._running.values()),
            best=self._best,
            remaining=last[1] and last[1].after(plan.spent_s - last[0]),
        )

    def _spent_s(self) -> float:
        """Returns the seconds of the search so far, including earlier runs of the session."""
        return self._begun.plan.spent_s + self._monotonic() - self._begun_s


class Picture(Screen):
    """Redraws the search in place, on a terminal. Ended trials and printed lines stay above it."""

    def __init__(self, console: Console, begun: Snapshot) -> None:
        super().__init__(console, begun)
        self._view = LiveView(console, lambda: draw.fitted_picture(self.snapshot(), console.height))

    def __enter__(self) -> Self:
        self._view.__enter__()
        return self

    def close(self) -> None:
        self._view.close()

    def note(self, text: str) -> None:
        self._view.say(text)

    def runs(self, trial: Trial) -> None:
        """Does nothing: the picture shows it."""


class Events(Screen):
    """Writes every event as a line of JSON."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._written: dict[int, tuple[float, str]] = {}  # time and phase of a trial's last progress event

    def _write(self, event: str, **values: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"event": event, "time": now, "session": self._begun.session, **values}
        self._console.out(events.line(line), highlight=False)

    def note(self, text: str) -> None:
        self._write("note", text=text)

    def conclude(self, lines: Sequence[str], facts: Mapping[str, Any]) -> None:
        del lines
        self._write("result", **facts)

    def runs(self, trial: Trial) -> None:
        self._write("started", **events.started(trial))

    def progress(self, trial: Trial, report: TrialReport) -> None:
        super().progress(trial, report)
        running, now_s = self._running[trial.number], self._monotonic()
        written_s, phase = self._written.get(trial.number, (-_PROGRESS_S, ""))
        if running.phase != phase or now_s - written_s >= _PROGRESS_S:
            self._written[trial.number] = now_s, running.phase
            self._write("progress", **events.progress(running, self.space, self.snapshot().remaining))

    def _show_end(self, trial: Trial) -> None:
        self._written.pop(trial.number, None)
        self._write("ended", **events.ended(trial, self._history))


def screen(console: Console, begun: Snapshot, *, as_json: bool = False) -> Screen:
    """Returns the screen for `console`: a picture if it is a terminal, else lines."""
    if as_json:
        return Events(console, begun)
    return (Picture if live.is_possible(console) else Screen)(console, begun)
