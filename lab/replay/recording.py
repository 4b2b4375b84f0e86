"""Records a table: the runs of a grid of settings, one at a time, on any device."""

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.core import units
from autotune.core.errors import InputError
from autotune.core.settings import Config, Key, Setting, settings_key
from autotune.core.trial import Status
from autotune.space import configurations
from autotune.space.space import Space
from autotune.storage.layout import TrialDir
from autotune.storage.records import is_mark, read_records
from autotune.trials import attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import NEVER, Ends, Order
from autotune.trials.setup import TrainingSetup
from lab.replay import drift, table
from lab.replay.drift import Drift
from lab.replay.table import Point, Run, Table

PARTS = ("all", "timed", "untimed")
_BASELINE_TIMES = 4
_POLL_S = 1.0


@dataclass(frozen=True)
class Planned:
    """A run that a table still lacks."""

    config: Config
    seed: int
    timed: bool


def grid(space: Space) -> list[dict[str, Setting]]:
    """Returns every configuration of `space`, the baseline first; raises InputError if infinitely many."""
    configs = configurations.allowed(space)
    if configs is None:
        loose = [name for name, knob in space.drawn_knobs.items() if knob.drawn_from.choice is None]
        rule = "a table has a finite grid, so every knob must be a choice"
        raise InputError(f"{rule}: {', '.join(loose) or 'there are more than 20,000 configurations'}")
    first = space.baseline_config
    return [first, *(config for config in configs if config != first)]


def missing(known: Table, *, seeds: int, timings: int, part: str = "all") -> Iterator[Planned]:
    """Yields the runs that `known` lacks: timed ones first, in passes over the whole grid.

    Settings that affect speed are timed `timings` times, far apart. The baseline is timed more often, because
    every comparison uses it. Settings that affect quality are run with `seeds` seeds. Failed runs are not
    repeated.
    """
    configs = grid(known.space)
    if part != "untimed":
        for turn in range(timings):
            for config in _distinct(configs, known.space.known.same_speed):
                if len(known.timed(config)) <= turn and not _fails(known, config):
                    yield Planned(config, turn, timed=True)
        for turn in range(max(timings, len(known.timed(configs[0]))), _BASELINE_TIMES * timings):
            yield Planned(configs[0], turn, timed=True)
    if part != "timed":
        for config in _distinct(configs, known.space.known.same_quality):
            for seed in range(seeds):
                if seed not in {run.seed for run in known.qualities(config)} and not _fails(known, config):
                    yield Planned(config, seed, timed=False)


def _distinct(configs: list[dict[str, Setting]], neutral: frozenset[str]) -> list[dict[str, Setting]]:
    first: dict[Key, dict[str, Setting]] = {}
    for config in configs:
        first.setdefault(settings_key(config, neutral), config)
    return list(first.values())


def _fails(known: Table, config: Config) -> bool:
    return any(run.outcome.status is Status.FAILED for run in known.timed(config))


def record(
    file: Path,
    known: Table,
    training: TrainingSetup,
    plan: Iterator[Planned],
    say: Callable[[str], None],
) -> None:
    """Runs the `plan`, and appends each run to the table in `file`."""
    server, scratch = ForkServer(training.workload.preload), _scratch(file)
    for planned in plan:
        order = training.order(planned.config, TrialDir(scratch), seed=planned.seed)
        shutil.rmtree(scratch, ignore_errors=True)
        run = _run(planned, order, server)
        table.append(file, run)
        known.add(run)
        say(f"{_shown(planned)}: {run.outcome}{_figures(run, training.space.unit)}")
    shutil.rmtree(scratch, ignore_errors=True)


def record_drift(file: Path, training: TrainingSetup, seconds: float) -> Drift:
    """Trains the baseline for `seconds`, and appends its speed per second to `file`.

    Raises InputError if it ends before one interval is complete.
    """
    scratch, space = _scratch(file), training.space
    shutil.rmtree(scratch, ignore_errors=True)
    order = training.order(space.baseline_config, TrialDir(scratch), samples=NEVER, evaluations=1)
    order = replace(order, ends=Ends(NEVER))
    deadline = math.inf
    with closing(attempt.reports(order, ForkServer(training.workload.preload))) as reports:
        for report in reports:
            if report.samples and deadline == math.inf:
                deadline = time.monotonic() + seconds
            if time.monotonic() >= deadline:
                break
    _, steps, _ = _clocked(order)
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        measured = drift.of_steps(steps)
    except ValueError:
        reason = (report.outcome and report.outcome.reason) or "it was given too little time"
        raise InputError(f"--drift: the baseline did not train for even a second: {reason}") from None
    table.append_drift(file, measured)
    return measured


def _scratch(file: Path) -> Path:
    """Returns the directory in which the table's runs are trained, one after the other."""
    return file.with_name(file.name + ".work")


def _run(planned: Planned, order: Order, server: ForkServer) -> Run:
    outcome, shown = attempt.run_alone(order, server)
    start_s, steps, evaluations = _clocked(order)
    return Run(
        config=planned.config,
        seed=planned.seed,
        outcome=outcome,
        timed=planned.timed,
        start_s=start_s,
        step_samples=tuple(n for n, _ in steps) if planned.timed else (),
        step_s=tuple(_short(s) for _, s in steps) if planned.timed else (),
        evaluations=tuple(evaluations if planned.timed else (p._replace(seconds=0.0) for p in evaluations)),
        peak_memory_bytes=shown.peak_memory_bytes,
        peak_reserved_bytes=shown.peak_reserved_bytes,
        memory_limit_bytes=shown.memory_limit_bytes,
    )


def _clocked(order: Order) -> tuple[float, list[tuple[int, float]], list[Point]]:
    """Returns seconds to the first step's end, the later steps, and the evaluations, from a run's records."""
    steps: list[tuple[int, float]] = []
    evaluations: list[Point] = []
    start_s, before_s, before = 0.0, None, 0
    for record in read_records(order.place):
        if is_mark(record):
            begun_s = record["clock_s"]
            continue
        at_s, samples = record["at_s"], record["samples"]
        if before_s is None:
            start_s = at_s - begun_s
        elif order.metric.name in record:
            point = _point(record, order.metric.name, at_s - before_s)
            evaluations += [] if point is None else [point]
        else:
            steps.append((samples - before, at_s - before_s))
        before_s, before = at_s, samples
    return start_s, steps, evaluations


def _point(record: Mapping[str, Any], quality: str, seconds: float) -> Point | None:
    """Returns an evaluation's point; None if its quality is not finite."""
    value = units.number(record[quality])
    if value is None:
        return None
    loss, chance = units.number(record.get("val_loss")), units.number(record.get(f"{quality}_chance"))
    collapsed = record.get("collapsed") is True
    return Point(record["samples"], _short(seconds), value, loss, chance, collapsed)


def _short(seconds: float) -> float:
    """Rounds a time to four significant digits, more than any clock's accuracy."""
    return float(f"{seconds:.4g}")


def _shown(planned: Planned) -> str:
    knobs = ", ".join(f"{name} {value}" for name, value in planned.config.items())
    return f"{'timed ' if planned.timed else ''}seed {planned.seed}: {knobs}"


def _figures(run: Run, unit: str) -> str:
    if not run.evaluations:
        return f": {run.outcome.reason}" if run.outcome.reason else ""
    speed = f", {sum(run.step_samples) / sum(run.step_s):.1f} {unit}/s" if run.step_s else ""
    return f"{speed}, quality {run.evaluations[-1].quality:.4f}"
