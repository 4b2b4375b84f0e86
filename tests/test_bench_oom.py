"""Few trials are lost to out-of-memory on toy problems that differ in where the border is."""

import random
import statistics
import sys
import warnings
from pathlib import Path

import optuna
import pytest

from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Status, Trial

SEEDS = 3


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    import bench_oom

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
        yield bench_oom
    sys.modules.pop("bench_oom")


class Toy:
    """A training of which half precision keeps `half` of the activations, and checkpointing `kept`."""

    def __init__(self, state_gib, sample_gib, limit_gib, *, half=0.6, kept=0.5, without=()):
        self.memory = state_gib, sample_gib, limit_gib, half, kept
        space = {
            "micro_batch_size": [4, 8, 16, 32, 64, 128, 256, 512, 1024],
            "precision": ["fp32", "tf32", "bf16", "fp16"],
            "activation_checkpointing": [False, True],
            "accumulation_steps": [1, 2, 4, 8],
            "learning_rate": (1e-5, 1e-2),
        }
        self.SPACE = {name: values for name, values in space.items() if name not in without}

    def evaluate(self, config, rng):
        state, sample, limit, half, kept = self.memory
        size = config["micro_batch_size"]
        sample *= half if config.get("precision", "fp32") in {"bf16", "fp16"} else 1.0
        sample *= kept if config.get("activation_checkpointing") else 1.0
        if state + sample * size > limit:
            return None
        return 100 * size / (size + 24) * rng.gauss(1, 0.01), 0.16 + rng.gauss(0, 0.002)


@pytest.mark.slow
@pytest.mark.parametrize(
    "toy",
    [
        Toy(2.0, 0.12, 24.0),
        Toy(1.0, 0.3, 80.0, half=0.5, kept=0.25),
        Toy(12.0, 0.5, 24.0, half=0.8, kept=0.7),
        Toy(2.0, 0.12, 24.0, without=("precision", "activation_checkpointing")),
    ],
)
def test_few_trials_run_out_of_memory_and_nothing_that_fits_is_passed_over(bench, toy):
    counts = [bench.ours(toy, seed, trials=40) for seed in range(SEEDS)]
    assert max(c.oom for c in counts) <= 4
    assert sum(c.would_have_fitted for c in counts) <= 0.01 * sum(c.passed_over for c in counts)
    tpe = bench.STRATEGIES["TPE, failed trials told FAIL"]
    lost = statistics.median(tpe(toy, seed, 40).oom for seed in range(SEEDS))
    assert lost > 2 * max(c.oom for c in counts)


def trial(number, peak, **config):
    return Trial(number, config, Outcome(Status.COMPLETED), Measurement(peak_memory_bytes=round(peak)))


def peaks_of_groups(seed):
    """Peaks with 2% of noise, four sizes of six groups in any order."""
    rng, gib, trials = random.Random(seed), 2**30, []
    groups = [(p, compiled) for p in ("fp32", "bf16", "fp8") for compiled in ("off", "default")]
    asked = [(*group, size) for group in groups for size in rng.sample([8, 16, 32, 64, 128], 4)]
    rng.shuffle(asked)
    for number, (precision, compiled, size) in enumerate(asked):
        sample = 0.1 * (1.0 if precision == "fp32" else 0.6) * (0.8 if compiled == "default" else 1.0)
        peak = (3.0 + sample * size) * gib * rng.gauss(1, 0.02)
        trials.append(trial(number, peak, micro_batch_size=size, precision=precision, compile=compiled))
    return trials


def test_the_third_peak_of_a_group_is_predicted_to_five_percent(bench):
    errors = [error for seed in range(10) for error in bench.held_out_errors(peaks_of_groups(seed))]
    assert len(errors) == 10 * 6
    assert statistics.median(errors) <= 0.05


def test_without_noise_the_third_peak_is_all_but_exact(bench):
    sizes = [8, 64, 128, 16]
    trials = [trial(n, (2 + n / 10) * 2**30, micro_batch_size=n, precision="fp32") for n in sizes]
    assert bench.held_out_errors(trials) == [pytest.approx(0.0, abs=0.02)]
