"""Synthetic searches, trial by trial."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.core.measurement import Evaluation, Measurement, Throughput
from autotune.core.trial import Failure, Outcome, Repeat, Status, Trial
from autotune.judging.decisions.history import History
from autotune.reports.figures import SessionFacts
from autotune.space.space import Space
from autotune.storage.store import Options
from autotune.storage.study_file import SearchPlan
from autotune.workloads.base import Workload
from tests.autotune.conftest import slices_of

GIB = 2**30


def trial(space: Space, number: int, speed: float | None, quality: float | None, **rest: Any) -> Trial:
    """Returns a trial with the given figures; knobs that are not given are the baseline's."""
    config = space.baseline_config | {name: rest.pop(name) for name in list(rest) if name in space.knobs}
    status, failure = Status(rest.pop("status", "completed")), rest.pop("failure", None)
    evaluations = () if quality is None else ((10_000, 5.0, quality / 2), (20_000, 9.0, quality))
    scores = rest.pop("scores", {"bleu_4": quality} if quality else {})
    others = ("shared", "memory_is_rising", "telemetry", "step_shares")
    measurement = Measurement(
        throughput=None if speed is None else Throughput(speed, rest.pop("half_width", 0.1), 40, 10.0),
        quality=quality,
        curve=tuple(Evaluation(*point) for point in evaluations),
        samples=rest.pop("samples", 20_000),
        peak_memory_bytes=rest.pop("peak", GIB),
        memory_limit_bytes=rest.pop("limit", 8 * GIB),
        scores={"samples": 20_000.0, "epoch": 3.0, **scores},
        **{name: rest.pop(name) for name in others if name in rest},
    )
    outcome = Outcome(Status.FAILED, Failure(failure), "as made") if failure else Outcome(status, None, "")
    return replace(
        Trial(number, config, outcome, measurement, seconds=rest.pop("seconds", 10.0)),
        repeat=rest.pop("repeat", None),
        ablation_of=rest.pop("ablation_of", None),
    )


def confirmed(
    space: Space, speeds: tuple[float, ...] = (29.0, 30.0, 31.0), factor: float = 3.0, **rest: Any
) -> list[Trial]:
    """Returns a baseline with a repeat, a trial that won a race by `factor`, and seeds of both."""
    faster = {"micro_batch_size": 64, "precision": "bf16", "peak": 2 * GIB}
    slices = Measurement(slices=slices_of({1: factor}, apart=0.01))
    done = Outcome(Status.COMPLETED)
    trials = [
        trial(space, 0, 10.0, 0.20),
        trial(space, 1, 35.0, 0.26, **faster),
        trial(space, 2, 10.0, 0.22, repeat=Repeat(0, 0)),
        Trial(3, space.baseline_config, done, slices, seconds=10.0, race=(0, 1)),
    ]
    for number, speed in enumerate(speeds, start=1):
        slow = 10.0 + number / 10, 0.191 + number / 100
        trials.append(trial(space, len(trials), *slow, repeat=Repeat(0, number), **rest))
        again = {"quality": 0.20 + number / 100, "repeat": Repeat(1, number), **faster, **rest}
        trials.append(trial(space, len(trials), speed, again.pop("quality"), **again))
    return trials


def known(space: Space) -> SessionFacts:
    """Returns a session that has ended with a confirmed winner."""
    return SessionFacts(
        path=Path("runs/s"),
        state="ended",
        history=History(confirmed(space), space),
        workload=Workload("some.module:fit"),
        options=Options(memory_limit_bytes=GIB, wandb="off"),
        provenance={"created": "2026-11-21", "training_samples": 60_000, "space": {"a": "b"}, "seed": 0},
        plan=SearchPlan(40, None, spent_s=900.0),
    )
