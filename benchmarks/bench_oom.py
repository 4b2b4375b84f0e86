"""Counts trials lost to out-of-memory, by strategy, on a toy problem with a memory limit.

    python benchmarks/bench_oom.py [TOY.py] [--trials 60] [--seeds 20]

TOY.py, by default borders.py next to this file, has `SPACE`, a dict of choices (lists) and log-uniform ranges
(pairs), and `evaluate(config, rng)`, which returns (throughput, quality), or None if memory runs out. Counts
are per search of that many trials. Searches do not see peak memory; `held_out_errors` has the error of the
memory model's predictions.
"""

import argparse
import importlib.util
import random
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import optuna
from optuna.trial import TrialState

from autotune.core.measurement import Measurement, Throughput
from autotune.core.trial import Failure, Outcome, RejectedFor, Status, Trial
from autotune.memory import memory_needs
from autotune.memory.feasibility import MemoryModel
from autotune.searcher.ports import Listener, SearchOptions
from autotune.searcher.search import Search
from autotune.space import spaces
from autotune.space.space import Space
from autotune.storage import studies
from autotune.trials.failures import failure

QUALITY = "bleu_4"


class Toy(Protocol):
    SPACE: Mapping[str, Any]

    def evaluate(self, config: Mapping[str, Any], rng: random.Random) -> tuple[float, float] | None: ...


@dataclass(frozen=True)
class Count:
    """The counts of one search; `would_have_fitted` are mistakes among the `passed_over`."""

    oom: int
    passed_over: int = 0
    would_have_fitted: int = 0
    best: float = 0.0


def load(path: Path) -> Toy:
    spec = importlib.util.spec_from_file_location("toy", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path}: no Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Toy", module)


def space_of(toy: Toy, trials: int) -> Space:
    """Converts the toy's space. The baseline has the smallest batch, first choices, and middles of ranges."""
    knobs: dict[str, Any] = {}
    baseline: dict[str, Any] = {}
    for name, values in toy.SPACE.items():
        if isinstance(values, list):
            knobs[name] = {"choice": values}
            baseline[name] = min(values) if name == "micro_batch_size" else values[0]
        else:
            knobs[name] = {"loguniform": list(values)}
            baseline[name] = (values[0] * values[1]) ** 0.5
    budget = {"trials": trials, "repeats": 0}
    values = {"workload": "toy", "baseline": baseline, "knobs": knobs, "budget": budget}
    return spaces.complete(spaces.from_values(values, "toy"), "toy")


def plain(toy: Toy, seed: int, trials: int, sampler: optuna.samplers.BaseSampler, told: TrialState) -> Count:
    """Runs a search without a memory model; trials out of memory are reported in the state `told`."""
    rng = random.Random(seed)
    study = optuna.create_study(directions=["maximize"] * 2, sampler=sampler)
    oom, best = 0, 0.0
    for _ in range(trials):
        trial = study.ask()
        config = _draw(trial, toy.SPACE)
        values = toy.evaluate(config, rng)
        if values is None:
            oom += 1
            study.tell(trial, state=told)
        else:
            best = max(best, values[0])
            study.tell(trial, values)
    return Count(oom, best=best)


def ours(toy: Toy, seed: int, trials: int) -> Count:
    """Runs this project's search over the toy; the baseline is the first trial, and nothing is repeated."""
    rng, spare = random.Random(seed), random.Random(-1 - seed)
    space = space_of(toy, trials)
    study = optuna.create_study(directions=["maximize"] * 2)
    search = Search(space, study, Listener(), SearchOptions(seed=seed))
    while (trial := search.next()) is not None:
        values = toy.evaluate(trial.config, rng)
        if values is None:
            search.end(trial.number, failure(Failure.OOM, "CUDA out of memory"), Measurement())
        else:
            measurement = Measurement(throughput=Throughput(values[0], None, 1, 1.0), quality=values[1])
            search.end(trial.number, Outcome(Status.COMPLETED), measurement)
    passed_over = [one.config for one in studies.read(study).passed_over if one.kind is RejectedFor.MEMORY]
    done = search.history.trials
    return Count(
        oom=sum(t.out_of_memory for t in done),
        passed_over=len(passed_over),
        would_have_fitted=sum(toy.evaluate(config, spare) is not None for config in passed_over),
        best=max((t.samples_per_s or 0.0 for t in done), default=0.0),
    )


def _draw(trial: optuna.Trial, space: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: trial.suggest_categorical(name, values)
        if isinstance(values, list)
        else trial.suggest_float(name, *values, log=True)
        for name, values in space.items()
    }


def held_out_errors(trials: Sequence[Trial]) -> list[float]:
    """Returns the prediction's relative error at the third micro-batch of every group that has three.

    The model is fitted to all earlier trials, of every group.
    """
    errors: list[float] = []
    sizes: dict[Any, set[float]] = {}
    known: list[Trial] = []
    for trial in trials:
        peak, need = trial.measurement.peak_memory_bytes, memory_needs.need_of(trial.config)
        seen = sizes.setdefault(need.labels, set())
        if trial.completed and peak:
            if len(seen) == 2 and need.micro_batch_size not in seen:
                prediction = MemoryModel(known).predict(trial.config)
                errors += [abs(prediction.expected_bytes - peak) / peak] if prediction else []
            seen.add(need.micro_batch_size)
        known.append(trial)
    return errors


Strategy = Callable[[Toy, int, int], Count]


def _tpe(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.TPESampler(seed=seed)


STRATEGIES: dict[str, Strategy] = {
    "TPE, failed trials told FAIL": lambda toy, s, n: plain(toy, s, n, _tpe(s), TrialState.FAIL),
    "TPE, told PRUNED": lambda toy, s, n: plain(toy, s, n, _tpe(s), TrialState.PRUNED),
    "random": lambda toy, s, n: plain(toy, s, n, optuna.samplers.RandomSampler(s), TrialState.FAIL),
    "autotune": ours,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("toy", nargs="?", type=Path, default=Path(__file__).with_name("borders.py"))
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=20)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    toy = load(args.toy)
    for name, strategy in STRATEGIES.items():
        counts = [strategy(toy, seed, args.trials) for seed in range(args.seeds)]
        ooms = [c.oom for c in counts]
        print(
            f"{name:30s} OOM of {args.trials}: median {statistics.median(ooms):4.1f}, max {max(ooms):2d}; "
            f"fastest, median {statistics.median(c.best for c in counts):.0f}"
        )
        if passed_over := sum(c.passed_over for c in counts):
            wrongly = sum(c.would_have_fitted for c in counts)
            print(f"{'':30s} passed over {passed_over}, of which would have fitted {wrongly}")


if __name__ == "__main__":
    main()
