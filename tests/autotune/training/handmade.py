"""A synthetic training directory: two attempts, and an evaluation after every 200 samples."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.core.measurement import Measurement, Metric
from autotune.core.trial import Outcome, Status
from autotune.judging.accounts.promise import Promise
from autotune.judging.measurement.estimates import Figure
from autotune.storage import identity
from autotune.storage.layout import TrainingDir
from autotune.training import events, plan
from autotune.training.events import Kind, TrainingEvent
from autotune.training.plan import TrainingPlan
from autotune.trials.progress import Progress

BEGUN, AGAIN = 1_800_000_000.0, 1_800_090_000.0  # a day later
BATCH, STEP_S, EVALUATION_S, EVERY = 8, 0.5, 4.0, 200
SAID = "failed (error): CUDA error; continues from its checkpoint"
SETTINGS = {"micro_batch_size": 8, "accumulation_steps": 1, "precision": "bf16", "learning_rate": 1.5e-4}
PROMISE = Promise(
    session="iu",
    trial=11,
    samples=400,
    throughput=Figure(16.0, 15.6, 16.4),
    quality=0.16,
    least=0.152,
    scatter=0.002,
    memory_bytes=4 * 2**30,
    origin=("some GPU", "abc"),
)
PLAN = TrainingPlan(
    "r2gen",
    SETTINGS,
    {**SETTINGS, "data": "data/iu"},
    2000,
    PROMISE,
    {"micro_batch_size": 4, "accumulation_steps": 2},
    metric=Metric("bleu_4"),
    device="some GPU",
)


def steps(begun: float, clock_s: float, first: int, last: int) -> list[dict[str, Any]]:
    """Returns the mark and the records of an attempt."""
    found: list[dict[str, Any]] = [{"attempt": begun, "clock_s": clock_s}]
    at_s = clock_s + 3.0
    for samples in range(first + BATCH, last + 1, BATCH):
        at_s += STEP_S
        loss, phases = 4 * math.exp(-samples / 800), {"data_s": 0.1, "forward_s": 0.3}
        step = {"memory_peak_bytes": 4 * 2**30, "train_loss": loss, **phases, "grad_norm": 1.5}
        found.append({"samples": samples, "at_s": at_s, **step})
        if samples % EVERY == 0:
            at_s += EVALUATION_S
            bleu = 0.2 * (1 - math.exp(-samples / 250))
            scores = {"bleu_4": bleu, "rouge_l": 0.31, "epoch": samples // 400}
            found.append({"samples": samples, "at_s": at_s, **scores})
    return found


def measured(records: list[dict[str, Any]]) -> Measurement:
    """Returns the measurement of the last process from its records, with its memory limit."""
    progress = Progress(PLAN.metric, PLAN.settings)
    for record in records:
        progress.count(record)
    return replace(progress.measurement(), memory_limit_bytes=16 * 2**30)


def write(root: Path, *, ended: bool = True) -> TrainingDir:
    """Returns a training that was killed after 1000 samples, resumed from 800, and ran to its end."""
    root.mkdir(parents=True, exist_ok=True)
    place = TrainingDir(root)
    plan.write(place, PLAN)
    begun = [
        TrainingEvent(BEGUN, 0, Kind.BEGUN, "training for 2,000 samples"),
        TrainingEvent(BEGUN + 90, 1000, Kind.RETRIED, SAID),
    ]
    records = steps(BEGUN, 500.0, 0, 1000)
    if ended:
        records += steps(AGAIN, 20.0, 800, 2000)
        begun += [
            TrainingEvent(AGAIN, 800, Kind.CONTINUED, "training"),
            TrainingEvent(AGAIN + 100, 2000, Kind.ENDED, "completed"),
        ]
        identity.write_verdict(place, Outcome(Status.COMPLETED), measured(records))
    place.records_file.write_text("".join(json.dumps(record) + "\n" for record in records) + '{"samples": 2')
    for event in begun:
        events.write(place.events_file, event)
    return place
