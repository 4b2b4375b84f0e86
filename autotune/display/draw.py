"""Draws a search at one moment for a terminal of 80 columns or more: live, and for `status`."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autotune.core import units
from autotune.core.errors import printable
from autotune.core.trial import Status, Trial, TrialKind
from autotune.display import rows, view, words
from autotune.display.rows import TrialFigures, TrialRow
from autotune.display.snapshot import INTERRUPTED, RUNNING, Snapshot
from autotune.space.space import Space
from autotune.trials.progress import Phase

HEADING, HINT = "bold", "dim"
WIDEST = 100  # in wider lines it is hard to find the figures of a configuration
_SPEED, _QUALITY, _MEMORY, _SPEEDUP = 13, 9, 9, 8  # columns of figures
_MANY = 20  # column of speeds in a unit such as tokens
_LONGEST_REASON = 160
_STYLES = {
    Status.COMPLETED: "green",
    Status.STOPPED: "yellow",
    Status.FAILED: "red",
    Status.INTERRUPTED: "cyan",
}
_ENDED_SHOWN, _MOST_SHOWN = 8, 1000
_LINES_BESIDE, _LINES_OF_TRIAL = 12, 2  # lines of the picture without running trials, and lines of each


def fitted_picture(snapshot: Snapshot, height: int) -> RenderableType:
    """Draws a search for a terminal with `height` lines: only the last trials that have ended."""
    most = max(1, (height - _LINES_BESIDE) // _LINES_OF_TRIAL)
    return _picture(snapshot, snapshot.trials[-_ENDED_SHOWN:], most if len(snapshot.running) > most else None)


def full_picture(snapshot: Snapshot) -> RenderableType:
    """Draws a search with its last thousand trials: more take longer to draw than to judge."""
    return _picture(snapshot, snapshot.trials[-_MOST_SHOWN:], None)


def _picture(snapshot: Snapshot, ended: Sequence[Trial], most_running: int | None) -> RenderableType:
    """Draws the session, the first running trials (all if None), the best one, and the `ended` ones."""
    parts: list[RenderableType] = [_header(snapshot)]
    if snapshot.running:
        parts += [Text(), _running(snapshot, most_running)]
    parts += [Text(), _best(snapshot)]
    if ended:
        grid = _grid("ended, newest first", snapshot.space, "speedup")
        for trial in reversed(ended):  # a terminal crops the last ones
            grid.add_row(str(trial.number), Text(view.name(trial)), _outcome(trial, snapshot))
        if len(ended) == _MOST_SHOWN < len(snapshot.trials):
            more = f"and {len(snapshot.trials) - _MOST_SHOWN:,} earlier ones, which --json has"
            grid.add_row("", Text(more, style=HINT), "")
        parts += [Text(), grid]
    return Constrain(Group(*parts), WIDEST)


def _header(snapshot: Snapshot) -> Group:
    searched = sum(t.kind is TrialKind.SEARCHED for t in snapshot.trials)
    state = RUNNING if snapshot.state == RUNNING else INTERRUPTED
    more = f", {len(snapshot.running)} {state}" if snapshot.running else ""
    more += f"; also {others}" if (others := view.count_others(map(view.kind, snapshot.trials))) else ""
    where = f" on {snapshot.device}" if snapshot.device else ""
    time, limit = units.format_seconds(snapshot.plan.spent_s), snapshot.plan.time_s
    time += " so far" if limit is None else f" of {units.format_seconds(limit)}"
    end = f"{snapshot.remaining} left" if snapshot.remaining else "the end is not known yet"
    if snapshot.state != RUNNING:
        end = snapshot.state
    elif not snapshot.trials and not snapshot.running:
        end = "the first trial is about to start"
    return Group(
        Text(printable(f"{snapshot.session}{where}"), style=HEADING),
        Text(f"{searched} of {snapshot.plan.trials} trials ended{more}"),
        Text(f"{time}, {end}"),
    )


def _grid(title: str, space: Space, last: str = "") -> Table:
    speed, name = f"{space.unit[: _SPEED - 3]}/s", printable(space.objective.quality)
    figures = _columns(space, speed, name[:_QUALITY], "memory", last)
    grid = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style=HEADING)
    grid.add_column("#", justify="right", width=4, no_wrap=True)
    grid.add_column(title, ratio=1, overflow="fold")
    grid.add_column(figures, width=len(figures), overflow="fold")
    return grid


def _columns(space: Space, speed: str, quality: str, memory: str, last: str) -> str:
    widest = _SPEED if space.unit == "samples" else _MANY
    score = _QUALITY + (len(space.objective.quality) >= _QUALITY)  # a space before the name
    return f"{speed:>{widest}}{quality:>{score}}{memory:>{_MEMORY}}{last:>{_SPEEDUP}}"


def _figures(run: TrialFigures, space: Space) -> Text:
    gain = words.factor(run.factor) if isinstance(run, TrialRow) and run.factor else ""
    peak = words.narrow_peak(run.peak_memory_bytes, is_rising=run.memory_is_rising)
    return Text(_columns(space, words.rate(run.throughput), words.score(run.quality), peak, gain))


def _running(snapshot: Snapshot, most: int | None) -> Table:
    grid = _grid(RUNNING if snapshot.state == RUNNING else INTERRUPTED, snapshot.space)
    for running in snapshot.running[:most]:
        trial, so_far = running.trial, rows.run_figures(running.trial.measurement, snapshot.space.objective)
        share = min(1.0, so_far.samples / snapshot.space.samples(trial.config))
        is_race = trial.kind is TrialKind.RACE  # it ends when it is decided: its progress is unknown
        phase = "comparing" if running.phase == Phase.RACING else running.phase
        progress = bar(phase, None if is_race else share, running.seconds)
        figures = Group(_figures(so_far, snapshot.space), progress)
        grid.add_row(str(trial.number), Text(f"{view.name(trial)}{view.where(trial)}"), figures)
    if most is not None:
        grid.add_row("", Text(f"and {len(snapshot.running) - most} more", style=HINT), "")
    return grid


def bar(phase: str, share: float | None, seconds: float) -> Table:
    """Draws a phase with its progress (`share`, None if unknown) and its duration."""
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


def _best(snapshot: Snapshot) -> Table:
    grid = _grid("best so far", snapshot.space, "speedup")
    baseline = snapshot.history.baseline
    if baseline is None or snapshot.best is None:
        grid.add_row("", Text("the baseline is not measured yet", style=HINT), "")
        return grid
    trial, claim = snapshot.best
    if trial.number != baseline.number:
        repeats = snapshot.space.budget.repeats
        text = "possibly faster, not confirmed" if repeats else "measured once; confirmation is off"
        if claim is not None:
            text = f"confirmed: {words.factor.interval(claim.factor)}"
        confirmation = Text(text, style=HINT, justify="right")
        figures = Group(_figures(rows.row(trial, snapshot.history), snapshot.space), confirmation)
        grid.add_row(str(trial.number), Text(view.name(trial)), figures)
    name = Text(f"baseline: {view.name(baseline)}")
    grid.add_row("0", name, _figures(rows.row(baseline, snapshot.history), snapshot.space))
    return grid


def _outcome(trial: Trial, snapshot: Snapshot) -> Text:
    if trial.kind is TrialKind.RACE and trial.completed:
        return Text(view.race_result(trial))
    if trial.completed:
        row = rows.row(trial, snapshot.history)
        reason = f"\ncannot win: {printable(row.reason)}" if row.reason else ""
        return _figures(row, snapshot.space).append(reason)
    reason = printable(trial.outcome.reason if trial.outcome else "")
    if len(reason) > _LONGEST_REASON:
        reason = f"{reason[:_LONGEST_REASON]}..."
    status = trial.outcome.status if trial.outcome else Status.INTERRUPTED
    text = Text(str(trial.outcome), style=_STYLES[status])
    return text.append(f": {reason}" if reason else "", style="default")
