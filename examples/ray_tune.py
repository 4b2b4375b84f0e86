"""A search of Ray Tune that learns where memory ends: `python ray_tune.py`.

The training is a stand-in that needs no GPU. The searcher does not know its limit.
"""

import argparse
from typing import Any

import ray
from ray import tune

from autotune.ray.search import MemoryAwareSearch

SAMPLE_MIB, FREE_MIB = {"fp32": 66, "bf16": 33}, 6500


def train(config: dict[str, Any]) -> None:
    """Reports its throughput, or runs out of memory as PyTorch does."""
    batch, precision = config["batch_size"], config["precision"]
    if SAMPLE_MIB[precision] * batch > FREE_MIB:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    tune.report({"samples_per_s": (720 if precision == "bf16" else 400) * batch / (batch + 24)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    trials = parser.parse_args().trials
    ray.init(num_cpus=1, include_dashboard=False)  # one trial at a time
    tuner = tune.Tuner(
        train,
        param_space={
            "batch_size": tune.choice([8, 16, 32, 64, 128, 256, 512]),
            "precision": tune.choice(["fp32", "bf16"]),
            "lr": tune.loguniform(1e-4, 1e-1),
        },
        tune_config=tune.TuneConfig(
            search_alg=MemoryAwareSearch(metric="samples_per_s", mode="max", seed=0),
            num_samples=trials,
        ),
    )
    results = tuner.fit()
    best = results.get_best_result("samples_per_s", "max")
    print(f"{results.num_errors} of {len(results)} trials ran out of memory")
    print(f"the best: {best.config}")


if __name__ == "__main__":
    main()
