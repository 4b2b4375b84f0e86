"""A search at one moment, drawn for a terminal of 80 columns or more: live, and by `status`."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autotune.core import units
from autotune.core.errors import printable
from autotune.core.trial import Trial, TrialKind
from autotune.display import rows, view, words
from autotune.display.rows import TrialFigures, TrialRow
from autotune.display.snapshot import INTERRUPTED, RUNNING, RunningTrial, Snapshot
from autotune.judging.decisions.claims import Claim
from autotune.space.space import Space
from autotune.trials.progress import Phase

HEADING, HINT = "bold", "dim"
WIDEST = 100  # the eye must find the figures of a configuration
_SPEED, _QUALITY, _MEMORY, _SPEEDUP = 14, 8, 9, 8  # columns of figures
_MANY = 20  # for speeds in a finer unit than samples
_LONGEST_REASON = 160
_ENDED_SHOWN = 8
_LINES_BESIDE, _LINES_OF_TRIAL = 12, 2  # lines that running trials leave to the rest of the picture


def fitted(shown: Snapshot, height: int) -> RenderableType:
    """`shown` for a terminal of so many lines: the last trials that ended; a terminal crops what is below."""
    most = max(1, (height - _LINES_BESIDE) // _LINES_OF_TRIAL)
    return _picture(shown, shown.trials[-_ENDED_SHOWN:], most if len(shown.running) > most else None)


def whole(shown: Snapshot) -> RenderableType:
    """All of `shown`."""
    return _picture(shown, shown.trials, None)


def _picture(shown: Snapshot, ended: Sequence[Trial], running: int | None) -> RenderableType:
    """The session, the running trials (so many if not all), the best so far, and those that have `ended`."""
    parts: list[RenderableType] = [_header(shown)]
    if shown.running:
        parts += [Text(), _running(shown, running)]
    parts += [Text(), _best(shown)]
    if ended:
        parts += [Text(), _ended(shown, ended)]
    return Constrain(Group(*parts), WIDEST)


def _header(shown: Snapshot) -> Group:
    """The session and its device, its progress, and when it will end."""
    searched = sum(t.kind is TrialKind.SEARCHED for t in shown.trials)
    state = RUNNING if shown.state == RUNNING else INTERRUPTED
    more = f", {len(shown.running)} {state}" if shown.running else ""
    more += f"; also {others}" if (others := view.besides(map(view.kind, shown.trials))) else ""
    where = f" on {shown.device}" if shown.device else ""
    return Group(
        Text(printable(f"{shown.session}{where}"), style=HEADING),
        Text(f"{searched} of {shown.plan.trials} trials ended{more}"),
        Text(_time(shown)),
    )


def _time(shown: Snapshot) -> str:
    """The time that a search has taken, and what is left of it as far as that is known."""
    spent, limit = units.format_seconds(shown.plan.spent_s), shown.plan.time_s
    text = f"{spent} of {units.format_seconds(limit)}" if limit is not None else f"{spent} so far"
    if shown.state != RUNNING:
        return f"{text}, {shown.state}"
    if not shown.trials and not shown.running:
        return f"{text}, the first trial is about to start"
    return f"{text}, {f'{shown.remaining} left' if shown.remaining else 'the end is not known yet'}"


def _grid(title: str, figures: str) -> Table:
    """A table of trials: number, configuration, and figures in columns as wide as their headings."""
    grid = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style=HEADING)
    grid.add_column("#", justify="right", width=4, no_wrap=True)
    grid.add_column(title, ratio=1, overflow="fold")
    grid.add_column(figures, width=len(figures), overflow="fold")
    return grid


def _headings(space: Space, last: str = "") -> str:
    name = printable(space.objective.quality)
    return _columns(space, f"{space.unit[: _SPEED - 3]}/s", name[:_QUALITY], "memory", last)


def _columns(space: Space, speed: str, quality: str, memory: str, last: str) -> str:
    widest = _SPEED if space.unit == "samples" else _MANY
    score = _QUALITY + (len(space.objective.quality) >= _QUALITY)  # a space before the name
    return f"{speed:>{widest}}{quality:>{score}}{memory:>{_MEMORY}}{last:>{_SPEEDUP}}"


def _figures(shown: TrialFigures, space: Space) -> Text:
    """Returns the figures of a run; for a trial that has ended, the gain of its settings too."""
    gain = words.factor(shown.factor) if isinstance(shown, TrialRow) and shown.factor else ""
    figures = words.rate(shown.throughput), words.score(shown.quality), shown.narrow_peak
    return Text(_columns(space, *figures, gain))


def _running(shown: Snapshot, most: int | None) -> Table:
    grid = _grid(RUNNING if shown.state == RUNNING else INTERRUPTED, _headings(shown.space))
    for running in shown.running[:most]:
        trial, so_far = running.trial, rows.of_run(running.trial.measurement, shown.space.objective)
        figures = Group(_figures(so_far, shown.space), _bar(running, shown.space))
        grid.add_row(str(trial.number), Text(view.name(trial)), figures)
    if most is not None:
        grid.add_row("", Text(f"and {len(shown.running) - most} more", style=HINT), "")
    return grid


def _bar(running: RunningTrial, space: Space) -> Table:
    samples, budget = running.trial.measurement.samples, space.budget.samples_per_trial
    # A race ends when it is decided: its progress is unknown.
    share = None if running.trial.kind is TrialKind.RACE else min(1.0, samples / budget)
    phase = "comparing" if running.phase == Phase.RACING else running.phase
    return bar(phase, share, running.seconds)


def bar(phase: str, share: float | None, seconds: float) -> Table:
    """A phase, its progress, None where unknown, and how long it has lasted."""
    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    grid.add_column(width=11)
    grid.add_column(ratio=1)
    grid.add_column(width=4, justify="right")
    grid.add_column(width=7, justify="right")
    grid.add_row(
        Text(phase, style="cyan"),
        ProgressBar(total=1.0, completed=share or 0.0),
        "" if share is None else f"{share:.0%}",
        units.format_seconds(seconds),
    )
    return grid


def _best(shown: Snapshot) -> Table:
    grid = _grid("best so far", _headings(shown.space, "speedup"))
    baseline = shown.history.baseline
    if baseline is None or shown.best is None:
        grid.add_row("", Text("the baseline is not measured yet", style=HINT), "")
        return grid
    trial, claim = shown.best
    if trial.number != baseline.number:
        surety = Text(_surety(claim, shown), style=HINT, justify="right")
        figures = Group(_figures(_row(trial, shown), shown.space), surety)
        grid.add_row(str(trial.number), Text(view.name(trial)), figures)
    name = Text(f"baseline: {view.name(baseline)}")
    grid.add_row("0", name, _figures(_row(baseline, shown), shown.space))
    return grid


def _row(trial: Trial, shown: Snapshot) -> TrialRow:
    return rows.row(trial, shown.history)


def _surety(claim: Claim | None, shown: Snapshot) -> str:
    if claim is not None:
        return f"confirmed: {words.factor.interval(claim.factor)}"
    repeats = shown.space.budget.repeats
    return "possibly faster, not confirmed" if repeats else "measured once; confirmation is off"


def _ended(shown: Snapshot, trials: Sequence[Trial]) -> Table:
    """The newest first: the oldest are those that there is no room for."""
    grid = _grid("ended, newest first", _headings(shown.space, "speedup"))
    for trial in reversed(trials):
        grid.add_row(str(trial.number), Text(view.name(trial)), _outcome(trial, shown))
    return grid


def _outcome(trial: Trial, shown: Snapshot) -> Text:
    """A completed trial's figures, or what became of the others and why."""
    if trial.kind is TrialKind.RACE and trial.completed:
        return Text(view.raced(trial))
    if trial.completed:
        row = _row(trial, shown)
        return _figures(row, shown.space).append(
            f"\nruled out: {printable(row.reason)}" if row.reason else ""
        )
    reason = printable(trial.outcome.reason if trial.outcome else "")
    if len(reason) > _LONGEST_REASON:
        reason = f"{reason[:_LONGEST_REASON]}..."
    text = Text(str(trial.outcome), style=view.style(trial))
    return text.append(f": {reason}" if reason else "", style="default")
