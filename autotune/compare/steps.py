"""Summarises the steps of a training from its records: final loss, bad steps and overflows. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.core import units

_LAST_PART = 0.1  # of the steps: one alone is noise


@dataclass(frozen=True)
class StepSummary:
    """The summary of a training's steps; None if the records do not say."""

    count: int = 0
    bad: int | None = None  # loss not finite, or counted as bad by the trainer
    overflows: int | None = None  # norm not finite though the loss is: fp16's loss scaling skips the update
    final_loss: float | None = None  # mean training loss over the last tenth of the steps that have one


def summarise(records: Iterable[Mapping[str, Any]]) -> StepSummary:
    """Summarises the steps in a training's `records`; for repeated steps the last record counts."""
    last = {record["samples"]: record for record in records if "train_loss" in record}
    steps = [last[samples] for samples in sorted(last)]
    losses = [loss for step in steps if (loss := units.number(step["train_loss"])) is not None]
    tail = losses[-math.ceil(_LAST_PART * len(losses)) :]
    bad = [
        (units.number(step.get("bad_steps")) or 0) > 0 or units.number(step["train_loss"]) is None
        for step in steps
    ]
    overflows = [
        not is_bad and units.number(step["grad_norm"]) is None
        for step, is_bad in zip(steps, bad, strict=True)
        if "grad_norm" in step
    ]
    return StepSummary(
        count=len(steps),
        bad=sum(bad) if steps else None,
        overflows=sum(overflows) if overflows else None,
        final_loss=math.fsum(tail) / len(tail) if tail else None,
    )
