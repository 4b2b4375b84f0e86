"""Checks that the measured speed is right, and that no step waits unnecessarily."""

from collections.abc import Iterator

from autotune.core.settings import MICRO_BATCH, PRECISION, Setting
from autotune.space.machine import explain_unsupported
from lab.gpu_check import verdicts
from lab.gpu_check.bench import Bench
from lab.gpu_check.small_trainings import QUALITY
from lab.gpu_check.verdicts import Found

_MICRO_BATCH = 8
_EPOCHS = 4
_MOST_WAITS = 2.0  # per step: one for the loss and norm; torch does not count the one at its end
_EVALUATED: dict[str, Setting] = {"eval_studies": 32}


def stamped_speed(bench: Bench) -> Iterator[Found]:
    """Compares a trial's throughput with whole epochs, and counts a step's waits for the GPU."""
    name = "the speed is that of whole epochs"
    samples = _EPOCHS * bench.training_studies + _MICRO_BATCH
    order = bench.order(samples, {MICRO_BATCH: _MICRO_BATCH, **_EVALUATED}, watched=True)
    ran = bench.run(order)
    stamped, whole = ran.measurement.throughput, verdicts.epochs_rate(ran.records)
    if stamped is None or whole is None:
        yield Found(name, None if ran.outcome is None else False, ran.ending)
        return
    ratio = stamped.samples_per_s / whole
    detail = f"{stamped.samples_per_s:.1f} samples/s stamped, {whole:.1f} in whole epochs: {ratio:.3f}"
    is_right = verdicts.is_stamped_well(stamped.samples_per_s, whole)
    yield Found(name, is_right, detail, {"stamped_per_s": stamped.samples_per_s, "epochs_per_s": whole})
    yield _judge_waits(verdicts.waits(ran.records))


def _judge_waits(waits: float | None) -> Found:
    name = "a step seldom waits for the GPU"
    if waits is None:
        return Found(name, None, "there is no GPU to wait for")
    return Found(name, waits <= _MOST_WAITS, f"{waits:.1f} times a step", {"waits_per_step": waits})


def second_evaluation(bench: Bench) -> Iterator[Found]:
    """Compares the times of the first and second evaluation, in a precision that suits cuDNN attention."""
    name = "an evaluation makes no plan for each word"
    precision = "fp32" if explain_unsupported(PRECISION, "bf16", bench.machine) else "bf16"
    every = _MICRO_BATCH * 2
    order = bench.order(
        2 * every, {PRECISION: precision, MICRO_BATCH: _MICRO_BATCH, **_EVALUATED}, evaluations=2
    )
    ran = bench.run(order)
    seconds = verdicts.evaluations_s(ran.records, QUALITY)
    if len(seconds) < 2:
        yield Found(name, None if ran.outcome is None else False, ran.ending)
        return
    detail = f"{seconds[0]:.1f} s, and the second one {seconds[1]:.1f} s, in {precision}"
    yield Found(name, verdicts.is_without_plans(seconds), detail, {"evaluations_s": seconds})
