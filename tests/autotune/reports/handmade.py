"""Synthetic reports: of a complete search, and of one that has just begun."""

import random
from dataclasses import dataclass, replace

from autotune.compare.results import StepSummary
from autotune.compare.verdict import ComparisonVerdict
from autotune.core.settings import Config
from autotune.display import view
from autotune.judging.accounts.costs import Cost, Prices
from autotune.judging.accounts.memory_forecast import Fit, MemoryForecast
from autotune.judging.decisions.ablation import AblationStep
from autotune.memory.memory_peaks import Prediction
from autotune.reports.model import Answer, Compared, Figure, Predicted, SessionReport, Side, Skipped

from .made_trials import (
    BASELINE,
    BEST,
    GIB,
    HOSTILE,
    LIMIT,
    SEEDS,
    between,
    curve,
    figure,
    peak_bytes,
    samples_per_s,
    searched,
)


def side(number: int, config: Config, quality: float, steps: dict[str, float], **rest: object) -> Side:
    speed = samples_per_s(config)
    hours = figure(206_900 / speed / 3600, 0.02)
    return Side(
        trial=number,
        config=config,
        knobs=view.knobs(config),
        throughput=figure(speed, 0.009),
        runs=SEEDS,
        quality=Figure(quality, quality - 0.0034, quality + 0.0034),
        seeds=SEEDS,
        scores={"bleu_1": 0.462, "bleu_4": quality, "rouge_l": 0.371},
        peak_memory_bytes=int(peak_bytes(config)),
        memory_is_rising=False,
        memory_share=peak_bytes(config) / LIMIT,
        full_training_s=206_900 / speed,
        step_s=steps,
        cost=Cost(hours, scaled(hours, 0.31), scaled(hours, 2.5)),
        **rest,
    )


def scaled(of: Figure, by: float) -> Figure:
    return Figure(of.value * by, of.low * by, of.high * by)


def answer() -> Answer:
    slow = {"data": 0.004, "transfer": 0.005, "forward": 0.071, "backward": 0.118, "optimizer": 0.021}
    fast = {"data": 0.011, "transfer": 0.009, "forward": 0.079, "backward": 0.131, "optimizer": 0.022}
    slow_use = {"gpu_percent": 71.0, "mfu": 0.13, "cpu_percent": 144.0, "joules_per_sample": 3.94}
    fast_use = {"gpu_percent": 93.0, "mfu": 0.36, "cpu_percent": 310.0, "joules_per_sample": 1.52}
    baseline, best = side(0, BASELINE, 0.1611, slow, **slow_use), side(11, BEST, 0.1619, fast, **fast_use)
    gain = best.throughput.value / baseline.throughput.value
    return Answer(
        verdict="confirmed",
        sentence=(
            f"Trial 11 trains {gain:.2f} times as fast as the baseline and keeps its BLEU-4: "
            "0.1619 against 0.1611 over three seeds."
        ),
        baseline=baseline,
        best=best,
        factor=Figure(gain, gain * 0.94, gain * 1.06),
        speed=Figure(gain, gain * 0.94, gain * 1.06),
        rounds=SEEDS,
        full_training_samples=206_900,
        prices=Prices(2.4, 0.32, "EUR"),
        cautions=(
            "The validation split is small: 296 studies, so that BLEU-4 moves by 0.003 from seed to seed.",
            "Trial 17 was thermally throttled, and slower for it.",
        ),
        commands=(
            "python -m autotune export runs/iu -o best.yaml",
            "python -m r2gen train --config best.yaml",
        ),
    )


def predicted() -> tuple[Predicted, ...]:
    sizes = (8, 16, 32, 64, 128, 256)
    found = []
    for name in ("fp32", "bf16", "fp8"):
        peaks = [peak_bytes(BEST | {"precision": name, "micro_batch_size": n}) for n in sizes]
        low, high = [peak * 0.94 for peak in peaks], [peak * 1.08 for peak in peaks]
        found.append(Predicted(name, sizes, tuple(peaks), tuple(low), tuple(high)))
    return tuple(found)


def elsewhere() -> MemoryForecast:
    """Returns a GPU too small to predict for, one with a smaller micro-batch, and two with larger ones."""
    found = []
    for gib, size, steps in ((4, None, 1), (8, 16, 4), (24, 64, 1), (80, 256, 1)):
        memory, allowed = gib * GIB, int(0.85 * gib * GIB)
        reason = "not known: micro_batch_size 8 may need 3.2 GiB to 4.1 GiB, and 3.4 GiB is allowed"
        if size is None:
            found.append(Fit(memory, allowed, reason=reason))
            continue
        config = BEST | {"micro_batch_size": size, "accumulation_steps": steps}
        peak = peak_bytes(config)
        predicted_peak = Prediction(peak, 0.9 * peak, 1.1 * peak)
        found.append(Fit(memory, allowed, config, size * steps, size * steps == 64, predicted_peak))
    return MemoryForecast(11, BEST, True, 0.85, False, tuple(found))


def ablation(first: int) -> tuple[AblationStep, ...]:
    """Returns the steps from baseline to winner; that of the learning rate was not measured."""
    steps, before = [], BASELINE
    for number, config in enumerate(between(), start=first):
        knob = next(name for name in config if config[name] != before[name])
        speed = samples_per_s(config)
        gain = figure(speed / samples_per_s(before), 0.05)
        steps.append(AblationStep(knob, before[knob], config[knob], number, figure(speed), gain))
        before = config
    rates = BASELINE["learning_rate"], BEST["learning_rate"]
    return (*steps, AblationStep("learning_rate", *rates, None, None, None, "it does not change the speed"))


_UNTRAINED = dict.fromkeys(("throughput", "training_peak_bytes", "reports_per_s", "writing_peak_bytes"))


def compared() -> tuple[Compared, ...]:
    """Returns the baseline and three precisions that trained, and one that did not."""
    rng = random.Random(3)
    models = []
    for n, label in enumerate(("baseline", "fp32", "bf16", "fp16")):
        config = BASELINE if label == "baseline" else BEST | {"precision": label}
        top = 0.158 + 0.002 * n
        scores = {f"bleu_{k}": top * 2.9 / k**0.75 for k in range(1, 4)} | {"bleu_4": top}
        models.append(
            Compared(
                label=label,
                config=config,
                status="completed",
                reason="",
                trial=0 if label == "baseline" else None,
                samples=20000,
                throughput=figure(samples_per_s(config)),
                training_peak_bytes=int(peak_bytes(config)),
                training_memory_is_rising=False,
                scores=scores | {"meteor": 0.187, "rouge_l": 0.371 + n / 500, "cider": 0.36 + n / 100},
                reports_per_s=21.0 + 6 * n,
                writing_peak_bytes=int((2.2 - 0.2 * n) * GIB),
                curve=curve(config, rng),
                seeds=3,
                steps=StepSummary(1250, bad=0, overflows=4 * (label == "fp16"), final_loss=1.83 + n / 100),
                beside_fp32=None if n < 2 else (n - 1) / 500,
                checkpoint_bytes=int(1.1 * GIB),
            )
        )
    failed = {"status": "failed", "reason": "fp8 needs a GPU of compute capability 8.9 or newer"}
    missing = {"scores": {}, "curve": (), "seeds": 0, **_UNTRAINED}
    return (*models, replace(models[-1], label="fp8", **failed, **missing))


def which_precision() -> ComparisonVerdict:
    return ComparisonVerdict(
        "fp16",
        "The fastest precision that keeps 95% of the baseline's improvement in bleu_4 on the test split is "
        "fp16, 2.86x as fast as the baseline: bleu_4 0.1640 instead of 0.1580, 99.1% to 108.0% of the "
        "baseline's improvement, 3 seeds each.",
    )


@dataclass(frozen=True)
class OwnTable:
    """Table of a workload's own section."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...] = (1,)
    note: str = ""
    is_detail: bool = False


@dataclass(frozen=True)
class OwnSection:
    """A workload's own section."""

    title: str = "Own"
    tables: tuple[OwnTable, ...] = (
        OwnTable("Own figures", ("model", "own score"), (("bf16", "0.5"),), note="What the figures are."),
        OwnTable("Own details", ("model", "note"), (("bf16", HOSTILE),), is_detail=True),
    )

    def html(self) -> str:
        return "<p>Escaped by the workload, such as &lt;b&gt;.</p>"


def rich(trials: int = 48) -> SessionReport:
    """Returns a report with all sections filled."""
    return SessionReport(
        session="runs/iu",
        created="2026-11-21T16:44:47+00:00",
        state="ended",
        quality="bleu_4",
        keep=0.95,
        select="same-quality",
        target=None,
        memory_fraction=0.85,
        memory_limit_bytes=LIMIT,
        samples_per_trial=20000,
        planned=trials,
        seconds=7_420.0,
        answer=answer(),
        least_quality=0.153,
        trials=searched(trials),
        predicted=predicted(),
        elsewhere=elsewhere(),
        ablation=ablation(trials + 3 * SEEDS),
        compared=compared(),
        which_precision=which_precision(),
        own=OwnSection(),
        skipped=(
            Skipped("would not fit in memory", 14, "256x1 fp32 workers 4: 21.4 GiB of 8.0 GiB"),
            Skipped("known to be slower", 9, "16x1 fp32 workers 0: 60.1 samples/s, measured"),
        ),
        provenance={
            "hardware": "1 NVIDIA GeForce RTX 4060 Laptop GPU, 8.0 GiB; 16 CPUs, 31.1 GiB",
            "driver": "580.95",
            "versions": "autotune-r2gen 0.1.0, torch 2.13.0, ray 2.60.0, optuna 5.0.0",
            "revision": "caaffb3d5e28",
            "data": "5f1d6ad0c1b2",
            "seeds": [0, 1, 2, 3],
            "measured_alone": 9,
            "measured_beside_others": 39,
            "command": "python -m autotune search --data data/iu_xray --session runs/iu --trials 48",
            "options": {"gpus_per_trial": 1.0, "memory_limit_bytes": None, "wandb": "off"},
        },
    )


def bare() -> SessionReport:
    """Returns the report of a search without an ended trial."""
    sentence = "No result yet: the baseline has not completed."
    return SessionReport(
        session="runs/begun",
        created="2026-11-21T16:44:47+00:00",
        state="running",
        quality="bleu_4",
        keep=0.95,
        select="same-quality",
        target=None,
        memory_fraction=0.85,
        memory_limit_bytes=None,
        samples_per_trial=20000,
        planned=40,
        seconds=12.0,
        answer=Answer("none", sentence, commands=("python -m autotune resume runs/begun",)),
        least_quality=None,
        trials=(),
        predicted=(),
        ablation=(),
        compared=(),
        skipped=(),
    )
