"""The messages about a training."""

from dataclasses import replace

import pytest

from autotune.core.measurement import Measurement, Throughput
from autotune.core.trial import Outcome, Status
from autotune.training import messages
from autotune.training.watch import TrainingStatus

from .test_plan import PLAN

SHOWN = Measurement(Throughput(100.0, 2.0, 50, 10.0), samples=1000, peak_memory_bytes=2**26)
MEMORY = "memory 64 MiB"
STANDING = TrainingStatus(PLAN, samples=1000, loss=0.51234, measurement=SHOWN)


def test_the_first_message_names_training_and_promise():
    line = "training for 4,000 samples with trial 4 of session s: batch 8, measured 100.0 ± 5.0 samples/s"
    assert messages.begun(PLAN) == line
    assert messages.begun(replace(PLAN, promise=None, samples=None)) == "training to its own end: batch 8"


@pytest.mark.parametrize(
    ("plan", "per_s", "line"),
    [
        (
            PLAN,
            50.0,
            "1,000 of 4,000 samples, 50.0 samples/s, 1m 00s of training left, loss 0.5123, " + MEMORY,
        ),
        (PLAN, None, "1,000 of 4,000 samples, loss 0.5123, memory 64 MiB"),
        (replace(PLAN, samples=None), 50.0, "1,000 samples, 50.0 samples/s, loss 0.5123, memory 64 MiB"),
    ],
)
def test_progress_has_the_time_left_at_the_current_speed(plan, per_s, line):
    assert messages.progress(replace(STANDING, plan=plan, recent_per_s=per_s)) == line


def test_an_end_says_why():
    assert messages.ended(Outcome(Status.COMPLETED), SHOWN, PLAN) == (
        "completed after 1,000 samples: 100.0 ± 2.0 samples/s, score -, memory 64 MiB"
    )
    stopped = Outcome(Status.INTERRUPTED, reason="was asked to stop")
    assert messages.ended(stopped, SHOWN, PLAN) == "interrupted after 1,000 samples: was asked to stop"


def test_other_programs_use_is_reported():
    busy = replace(SHOWN, telemetry={"others_cpu_percent": 176.0, "allowed_cpus": 2.0, "gpu_throttled": 0.5})
    assert messages.contention(busy) == [
        "other programs used 88% of the CPUs",
        "the GPU was slowed down by heat or its power limit",
    ]
    assert messages.contention(SHOWN) == []
