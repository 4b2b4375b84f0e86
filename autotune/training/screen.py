"""Shows a running training: a live panel on a terminal, otherwise a line now and then."""

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from autotune.core.errors import printable
from autotune.core.measurement import Measurement
from autotune.display import draw, live, view, words
from autotune.display.live import LiveView
from autotune.judging.accounts import promise
from autotune.judging.measurement import estimates
from autotune.judging.measurement.estimates import Figure
from autotune.judging.measurement.trends import Point
from autotune.system import nvml
from autotune.training import messages
from autotune.training.standing import TrainingStatus
from autotune.trials.progress import Phase

_SAY_EVERY_S = 30.0
_LABELS = 11  # characters, as wide as the phase above them
_BARS = "▁▂▃▄▅▆▇█"
_FEWEST_IN_CURVE, _WIDEST_CURVE = 3, 16
_GOOD, _WARNING = "green", "yellow"


class TrainingScreen:
    """Shows the status of a training, and its messages.

    On a terminal it is a panel that is redrawn in place, below the messages. The panel disappears once the
    training is asked to stop, because a second signal may end this process before it can tidy up.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._standing: TrainingStatus | None = None
        self._said_s = float("-inf")
        self._view = LiveView(console, self._drawn) if live.is_possible(console) else None

    def __enter__(self) -> Self:
        if self._view:
            self._view.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the terminal as it was."""
        if self._view:
            self._view.close()

    def say(self, text: str) -> None:
        if self._view:
            self._view.say(text)
        else:
            with suppress(OSError):  # the disk of a log is full: the training continues
                print(printable(text), flush=True)

    def stands(self, standing: TrainingStatus) -> None:
        """Takes the training's status, every second."""
        self._standing = standing
        if self._view is None and self._clock() - self._said_s >= _SAY_EVERY_S:
            self._said_s = self._clock()
            self.say(messages.progress(standing))

    def stopping(self, text: str) -> None:
        """Says that a signal has come; called from its handler, possibly in the middle of a print."""
        if self._view and self._view.is_open:
            self._view.close_with(text)
        else:
            with suppress(OSError):
                os.write(1, f"{text}\n".encode())

    def _drawn(self) -> RenderableType:
        return panel(self._standing) if self._standing else Text()


def panel(standing: TrainingStatus) -> RenderableType:
    """Draws what is trained, how far it is, and its figures next to the promised ones."""
    plan, phase = standing.plan, standing.phase
    share = None if plan.samples is None else min(1.0, standing.samples / plan.samples)
    parts: list[RenderableType] = [
        *_heading(standing),
        draw.bar(Phase.TRAINING if phase is Phase.MEASURING else phase, share, standing.seconds),
        Text(_done(standing)),
        Text(),
        _figures(standing),
    ]
    return Constrain(Group(*parts), draw.WIDEST)


def _heading(standing: TrainingStatus) -> Iterator[Text]:
    plan = standing.plan
    knobs = view.knobs({**plan.config, **plan.changes}) or "the baseline"
    origin = f"trial {plan.promise.trial} of session {plan.promise.session}, " if plan.promise else ""
    yield Text(f"training {knobs}", style=draw.HEADING)
    yield Text(printable(f"{origin}on {plan.device}"), style=draw.HINT)


def _done(standing: TrainingStatus) -> str:
    """Returns the known parts of `12,400 of 40,000 samples, epoch 3.1 of 10.0, 27m 05s of training left`."""
    total, epoch = standing.plan.samples, standing.epoch
    parts = [messages.done(standing.samples, total, standing.plan.metric.unit)]
    if epoch:
        of = "" if total is None else f" of {total / epoch:.1f}"
        parts.append(f"epoch {standing.samples / epoch:.1f}{of}")
    if standing.left_s is not None:
        parts.append(f"{words.duration(standing.left_s)} of training left")
    return ", ".join(parts)


def _figures(standing: TrainingStatus) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    grid.add_column(width=_LABELS)
    grid.add_column(ratio=1, overflow="fold")
    rows = {
        "throughput": _throughput(standing),
        "promised": _promised(standing),
        "quality": _quality(standing),
        "loss": _loss(standing),
        "step": Text(words.step(standing.step_shares)),
        "memory": Text(_memory(standing)),
        "CPUs": Text(_cpus(standing.telemetry)),
        **_gpus(standing.telemetry),
        "meanwhile": Text(_meanwhile(standing.telemetry), style=_WARNING),
    }
    for label, text in rows.items():
        if text:
            grid.add_row(Text(label, style="cyan"), text)
    return grid


def _throughput(standing: TrainingStatus) -> Text:
    """Returns the current throughput and the mean so far."""
    unit, so_far, mfu = standing.plan.metric.unit, _so_far(standing), standing.measurement.mfu
    parts = {
        f"{words.rate(standing.recent_per_s)} {unit}/s now": standing.recent_per_s,
        f"{words.rate(so_far)} so far": so_far,
        f"HFU {words.share(mfu)}": mfu,
    }
    shown = ", ".join(text for text, value in parts.items() if value is not None)
    return Text(shown) if shown else Text("not known yet", style=draw.HINT)


def _so_far(standing: TrainingStatus) -> Figure | None:
    return estimates.throughput_figure(standing.measurement.throughput)


def _promised(standing: TrainingStatus) -> Text:
    """Returns the promised throughput, how the current one compares, and the promised quality."""
    plan, known, text = standing.plan, standing.plan.promise, Text()
    if known is None:
        return text
    if known.throughput is not None:
        text.append(f"{words.rate(known.throughput)} {plan.metric.unit}/s")
        if per_s := _comparable_per_s(standing):
            ratio = per_s / known.throughput.value
            is_slower = ratio <= 1 - promise.SLACK
            text.append(": ").append(promise.compare_speed(ratio), style=_WARNING if is_slower else _GOOD)
    if known.least is not None and known.quality is not None:
        quality = _point_text(Point(known.samples, plan.metric.turned(known.quality)))
        text.append(f"{', ' if text else ''}{printable(plan.metric.name)} {quality}")
    return text


def _comparable_per_s(standing: TrainingStatus) -> float | None:
    """Returns the current throughput; the mean so far if evaluations count, as step windows exclude them."""
    so_far = _so_far(standing)
    now = None if standing.plan.metric.counts_evaluations else standing.recent_per_s
    return now or (so_far.value if so_far else None)


def _quality(standing: TrainingStatus) -> Text:
    """Returns the last evaluation, the best if it differs, and the curve."""
    name, best = printable(standing.plan.metric.name), standing.best
    if best is None:
        return Text(f"no evaluation has {name} yet", style=draw.HINT)
    last = standing.curve[-1]
    text = f"{name} {_point_text(last)}" + (f", best {_point_text(best)}" if best.value != last.value else "")
    return Text(text).append(_curve(standing.curve), style=_GOOD)


def _point_text(point: Point) -> str:
    return f"{words.score(point.value)} after {words.count(point.samples)}"


def _loss(standing: TrainingStatus) -> Text:
    if standing.loss is None:
        return Text()
    return Text(words.score(standing.loss)).append(_curve(standing.losses), style=_GOOD)


def _curve(points: Sequence[Point]) -> str:
    """Returns a space and a sparkline: one bar for the mean over each part of the samples."""
    width = min(_WIDEST_CURVE, len(points))
    if width < _FEWEST_IN_CURVE:
        return ""
    first, last = points[0].samples, points[-1].samples
    columns: dict[int, list[float]] = defaultdict(list)
    for point in points:
        columns[min(width - 1, int((point.samples - first) / (last - first) * width))].append(point.value)
    means = [statistics.fmean(columns[n]) for n in range(width) if n in columns]
    low, high = min(means), max(means)
    steps = [(mean - low) / (high - low) if high > low else 0.0 for mean in means]
    return " " + "".join(_BARS[round(step * (len(_BARS) - 1))] for step in steps)


def _memory(standing: TrainingStatus) -> str:
    """Returns the training's memory, now and at its peak, and the machine's."""
    seen, shown = standing.telemetry, standing.measurement
    parts = {
        f"{words.memory(seen.get('host_rss_bytes'))} on the host": "host_rss_bytes" in seen,
        f"peak {messages.peak(shown)}": shown.peak_memory_bytes is not None,
        f"the machine {_share(seen, 'host_memory')}": _share(seen, "host_memory"),
    }
    return ", ".join(text for text, is_known in parts.items() if is_known)


def _share(seen: Mapping[str, float], of: str) -> str:
    """Returns e.g. `3.1 GiB of 15.6 GiB` for a memory in use; empty if unknown."""
    used, free = seen.get(f"{of}_used_bytes"), seen.get(f"{of}_free_bytes")
    return "" if used is None or free is None else f"{words.memory(used)} of {words.memory(used + free)}"


def _cpus(seen: Mapping[str, float]) -> str:
    """Returns how many CPUs it keeps busy."""
    if "cpu_percent" not in seen:
        return ""
    of = f" of {seen['allowed_cpus']:.0f}" if "allowed_cpus" in seen else ""
    return f"{seen['cpu_percent'] / 100:.1f}{of} busy"


def _gpus(seen: Mapping[str, float]) -> dict[str, Text]:
    """Returns one line per GPU."""
    each = {f"GPU {index}": Text(_gpu(figures)) for index, figures in nvml.by_gpu(seen).items()}
    return each or {"GPU": Text(_gpu(seen))}


def _gpu(seen: Mapping[str, float]) -> str:
    figures = {
        "gpu_utilisation_percent": "{:.0f}% busy",
        "gpu_temperature_c": "{:.0f} °C",
        "gpu_power_w": "{:.0f} W",
        "gpu_sm_clock_mhz": "{:.0f} MHz",
    }
    parts = [text.format(seen[name]) for name, text in figures.items() if name in seen]
    return ", ".join([*parts[:1], *filter(None, [_share(seen, "gpu_memory")]), *parts[1:]])


def _meanwhile(seen: Mapping[str, float]) -> str:
    """Says what slows it down at the moment."""
    return ", ".join(messages.meanwhile(Measurement(telemetry=seen)))
