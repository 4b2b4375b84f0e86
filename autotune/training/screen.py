"""Shows a running training: as a live panel on a terminal, otherwise as a line now and then."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
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
from autotune.training.watch import TrainingStatus
from autotune.trials.progress import Phase

_SAY_EVERY_S = 30.0
_LABELS = 11  # characters, as wide as the phase above them
_GOOD, _WARNING = "green", "yellow"


class TrainingScreen:
    """Shows a training's status and messages; on a terminal, a panel that is redrawn below the messages."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._status: TrainingStatus | None = None
        self._said_s = float("-inf")
        self._view = LiveView(console, self._drawn) if live.is_possible(console) else None

    def __enter__(self) -> Self:
        if self._view:
            self._view.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._view:
            self._view.close()

    def say(self, text: str) -> None:
        if self._view:
            self._view.say(text)
        else:
            with suppress(OSError):  # the disk of a log is full: the training continues
                print(printable(text), flush=True)

    def update(self, status: TrainingStatus) -> None:
        """Takes the training's status, every second."""
        self._status = status
        if self._view is None and self._clock() - self._said_s >= _SAY_EVERY_S:
            self._said_s = self._clock()
            self.say(messages.progress(status))

    def stopping(self, text: str) -> None:
        """Prints a message about a signal; called from its handler, maybe in the middle of a print."""
        if self._view and self._view.is_open:
            self._view.close_with(text)  # a second signal may end this process before it can tidy up
        else:
            with suppress(OSError):
                os.write(1, f"{text}\n".encode())

    def _drawn(self) -> RenderableType:
        return panel(self._status) if self._status else Text()


def panel(status: TrainingStatus) -> RenderableType:
    """Draws the settings of a training, its progress, and its figures next to the promised ones."""
    plan, phase, epoch = status.plan, status.phase, status.epoch
    knobs = view.knobs({**plan.config, **plan.changes}) or "the baseline"
    origin = f"trial {plan.promise.trial} of session {plan.promise.session}, " if plan.promise else ""
    progress = [messages.done(status.samples, plan.samples, plan.metric.unit)]
    if epoch:
        of = "" if plan.samples is None else f" of {plan.samples / epoch:.1f}"
        progress.append(f"epoch {status.samples / epoch:.1f}{of}")
    if status.left_s is not None:
        progress.append(f"{words.duration(status.left_s)} of training left")
    share = None if plan.samples is None else min(1.0, status.samples / plan.samples)
    return Constrain(
        Group(
            Text(f"training {knobs}", style=draw.HEADING),
            Text(printable(f"{origin}on {plan.device}"), style=draw.HINT),
            draw.bar(Phase.TRAINING if phase is Phase.MEASURING else phase, share, status.seconds),
            Text(", ".join(progress)),
            Text(),
            _figures(status),
        ),
        draw.WIDEST,
    )


def _figures(status: TrainingStatus) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    grid.add_column(width=_LABELS)
    grid.add_column(ratio=1, overflow="fold")
    telemetry = status.telemetry
    contention = ", ".join(messages.contention(Measurement(telemetry=telemetry)))
    gpus = nvml.by_gpu(telemetry)
    rows = {
        "throughput": _throughput(status),
        "promised": _promised(status),
        "quality": _quality(status),
        "loss": Text("" if status.loss is None else words.score(status.loss)),
        "step": Text(words.phase_shares(status.step_shares)),
        "memory": Text(_memory(status)),
        "CPUs": Text(_cpus(telemetry)),
        "GPU": Text("" if gpus else _gpu(telemetry)),
        **{f"GPU {index}": Text(_gpu(figures)) for index, figures in gpus.items()},
        "meanwhile": Text(contention, style=_WARNING),
    }
    for label, text in rows.items():
        if text:
            grid.add_row(Text(label, style="cyan"), text)
    return grid


def _throughput(status: TrainingStatus) -> Text:
    unit, mean, mfu = status.plan.metric.unit, _mean_throughput(status), status.measurement.mfu
    parts = {
        f"{words.rate(status.recent_per_s)} {unit}/s now": status.recent_per_s,
        f"{words.rate(mean)} so far": mean,
        f"HFU {words.share(mfu)}": mfu,
    }
    text = ", ".join(text for text, value in parts.items() if value is not None)
    return Text(text) if text else Text("not known yet", style=draw.HINT)


def _mean_throughput(status: TrainingStatus) -> Figure | None:
    return estimates.throughput_figure(status.measurement.throughput)


def _promised(status: TrainingStatus) -> Text:
    metric, promised, text = status.plan.metric, status.plan.promise, Text()
    if promised is None:
        return text
    if promised.throughput is not None:
        text.append(f"{words.rate(promised.throughput)} {metric.unit}/s")
        # Step windows exclude evaluations: the mean has them, if they count.
        mean = _mean_throughput(status)
        per_s = (None if metric.counts_evaluations else status.recent_per_s) or (mean.value if mean else None)
        if per_s:
            ratio = per_s / promised.throughput.value
            style = _WARNING if ratio <= 1 - promise.SLACK else _GOOD
            text.append(" (now ").append(promise.compare_speed(ratio), style=style).append(")")
    if promised.least is not None and promised.quality is not None:
        quality = _point_text(Point(promised.samples, metric.turned(promised.quality)))
        text.append(f"{', ' if text else ''}{printable(metric.name)} {quality}")
    return text


def _quality(status: TrainingStatus) -> Text:
    name, best = printable(status.plan.metric.name), status.best
    if best is None:
        return Text(f"no evaluation has {name} yet", style=draw.HINT)
    text = f"{name} {_point_text(status.curve[-1])}"
    return Text(text if best.value == status.curve[-1].value else f"{text}, best {_point_text(best)}")


def _point_text(point: Point) -> str:
    return f"{words.score(point.value)} after {words.count(point.samples)}"


def _memory(status: TrainingStatus) -> str:
    telemetry, measured = status.telemetry, status.measurement
    machine = _use(telemetry, "host_memory")
    parts = {
        f"{words.memory(telemetry.get('host_rss_bytes'))} on the host": "host_rss_bytes" in telemetry,
        f"peak {messages.peak(measured)}": measured.peak_memory_bytes is not None,
        f"the machine {machine}": machine,
    }
    return ", ".join(text for text, is_known in parts.items() if is_known)


def _use(telemetry: Mapping[str, float], memory: str) -> str:
    """Returns the use of a memory, such as `3.1 GiB of 15.6 GiB`, "" if unknown."""
    used, free = (telemetry.get(f"{memory}_{part}_bytes") for part in ("used", "free"))
    return "" if used is None or free is None else f"{words.memory(used)} of {words.memory(used + free)}"


def _cpus(telemetry: Mapping[str, float]) -> str:
    if "cpu_percent" not in telemetry:
        return ""
    of = f" of {telemetry['allowed_cpus']:.0f}" if "allowed_cpus" in telemetry else ""
    return f"{telemetry['cpu_percent'] / 100:.1f}{of} busy"


def _gpu(telemetry: Mapping[str, float]) -> str:
    figures = {
        "gpu_utilisation_percent": "{:.0f}% busy",
        "gpu_temperature_c": "{:.0f} °C",
        "gpu_power_w": "{:.0f} W",
        "gpu_sm_clock_mhz": "{:.0f} MHz",
    }
    busy, *rest = (text.format(telemetry[n]) if n in telemetry else "" for n, text in figures.items())
    return ", ".join(filter(None, [busy, _use(telemetry, "gpu_memory"), *rest]))
