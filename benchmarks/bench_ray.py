"""Counts trials lost to out-of-memory with two searchers of Ray Tune, on a toy problem with a memory limit.

    python benchmarks/bench_ray.py [TOY.py] [--trials 60] [--seeds 5] [--at-once 1] [--real]

TOY.py is as for bench_oom. A script calls the searchers as Ray Tune does; with `--real`, a `tune.Tuner` does,
which takes about a second per trial. Both searchers maximise throughput and quality.
"""

import argparse
import logging
import random
import statistics
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, cast

import optuna
import ray
from bench_oom import Toy, load
from ray import cloudpickle, tune
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from autotune.ray.search import MemoryAwareSearch

METRICS = ["throughput", "quality"]
SEARCHERS: dict[str, type[OptunaSearch]] = {
    "OptunaSearch": OptunaSearch,
    "MemoryAwareSearch": MemoryAwareSearch,
}


class OutOfMemoryError(RuntimeError):
    """Like PyTorch's, which takes every worker seconds to import."""


def space_of(toy: Toy) -> dict[str, Any]:
    return {
        name: tune.choice(values) if isinstance(values, list) else tune.loguniform(*values)
        for name, values in toy.SPACE.items()
    }


def simulate(toy: Toy, searcher: OptunaSearch, trials: int, at_once: int, seed: int) -> tuple[int, float]:
    """Returns how many trials ran out of memory, and the best throughput."""
    rng, running, lost, best = random.Random(seed), list[tuple[str, Any]](), 0, 0.0
    searcher.set_search_properties(None, None, space_of(toy))
    with TemporaryDirectory() as directory:
        searcher.save_to_dir(directory)  # as Ray does before the first trial starts
        names = [f"trial_{number:05d}" for number in reversed(range(trials))]
        while names or running:
            while names and len(running) < at_once:
                config: Any = searcher.suggest(names[-1])
                if config == Searcher.FINISHED:
                    names.clear()
                else:
                    running.append((names.pop(), config))
            if not running:
                break
            name, config = running.pop(rng.randrange(len(running)))
            values = toy.evaluate(config, rng)
            if values is None:
                lost += 1
                (place := Path(directory, name)).mkdir()
                (place / "error.txt").write_text(
                    "Failure # 1 (now)\ntorch.OutOfMemoryError: CUDA out of memory."
                )
                searcher.on_trial_complete(name, error=True)
            else:
                best = max(best, values[0])
                result = {**dict(zip(METRICS, values, strict=True)), "training_iteration": 1}
                searcher.on_trial_result(name, result)
                searcher.on_trial_complete(name, result)
    return lost, best


def search(toy: Toy, searcher: OptunaSearch, trials: int, at_once: int, _seed: int) -> tuple[int, float]:
    """Returns the same as `simulate`, of a real search."""
    with TemporaryDirectory() as directory:
        results = tune.Tuner(
            trainable(toy),
            param_space=space_of(toy),
            tune_config=tune.TuneConfig(
                search_alg=searcher, num_samples=trials, max_concurrent_trials=at_once, reuse_actors=True
            ),
            run_config=tune.RunConfig(storage_path=directory, verbose=0),
        ).fit()
        speeds = [(results[i].metrics or {}).get("throughput", 0.0) for i in range(len(results))]
        return results.num_errors, max(speeds)


def trainable(toy: Toy) -> Callable[[Mapping[str, Any]], None]:
    def train(config: Mapping[str, Any]) -> None:
        values = toy.evaluate(config, random.Random(repr(config)))
        if values is None:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        tune.report(dict(zip(METRICS, values, strict=True)))

    return train


def start_ray(toy: Toy, cpus: int) -> None:
    sys.modules["toy"] = cast("ModuleType", toy)  # which workers cannot import
    cloudpickle.register_pickle_by_value(toy)  # type: ignore[no-untyped-call]
    ray.init(num_cpus=cpus, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("toy", nargs="?", type=Path, default=Path(__file__).with_name("borders.py"))
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--real", action="store_true")
    args = parser.parse_args()
    toy = load(args.toy)
    warnings.filterwarnings("ignore")
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # a traceback for each failed trial
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if args.real:
        start_ray(toy, args.at_once)
    count = search if args.real else simulate
    for name, kind in SEARCHERS.items():
        searchers = [kind(metric=METRICS, mode=["max", "max"], seed=seed) for seed in range(args.seeds)]
        counts = [count(toy, one, args.trials, args.at_once, seed) for seed, one in enumerate(searchers)]
        lost, best = zip(*counts, strict=True)
        print(
            f"{name:18s} OOM of {args.trials}: median {statistics.median(lost):4.1f}, max {max(lost):2d}; "
            f"fastest, median {statistics.median(best):.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
