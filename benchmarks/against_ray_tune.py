"""Compares `autotune search` with what one would write instead: plain Ray Tune with OptunaSearch and ASHA.

    python benchmarks/against_ray_tune.py DIRECTORY [--minutes 40] [--repetitions 3] [--only ray-tune]

DIRECTORY is a clone of nanoGPT with prepared character data. Both get the recipe's command line, the same
time, and the same knobs: batch, rate, length and torch.compile, of which `autotune` finds out by itself. Ray
Tune is told the loss that counts as good enough: the recipe's own, from a run within its time, and 1% of what
the training improves, which is the limit of `autotune` too. It recommends the quickest whole training that
was good enough. Then the script alone trains with the recipe and with each recommendation, in turns, with
three other seeds; the times are of whole runs.
"""

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ray
from nanogpt_alone import RECIPE, command, flags
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

import autotune

EVALUATED = {"eval_iters": 20}
SCHEDULE = {"batch_size": 12, "max_iters": 2000, "lr_decay_iters": 2000, "learning_rate": 1e-3}
UNTRAINED = math.log(65)  # loss of a uniform guess among 65 characters
KEEP = 0.01  # share of the improvement that may be lost
SEEDS = (11, 12, 13)

Settings = Mapping[str, Any]


def run(directory: Path, settings: Settings, seed: int = 1337) -> Iterator[tuple[float, float, float]]:
    """Trains by the script alone; yields share of the steps, seconds so far and validation loss."""
    with tempfile.TemporaryDirectory() as scratch:
        alone = command(directory, scratch, {**EVALUATED, **settings}, seed)
        begun_s = time.monotonic()
        with subprocess.Popen(alone, cwd=directory, stdout=subprocess.PIPE, text=True) as process:
            try:
                for line in process.stdout or ():
                    if found := re.match(r"step (\d+): .* val loss ([0-9.]+)", line):
                        step, loss = int(found[1]), float(found[2])
                        yield step / settings["max_iters"], time.monotonic() - begun_s, loss
            finally:
                process.kill()


def trained(directory: Path, settings: Settings, seed: int) -> tuple[float, float]:
    """Returns the seconds of a whole training, and its final loss."""
    begun_s = time.monotonic()
    *_, (_, _, loss) = run(directory, settings, seed)
    return time.monotonic() - begun_s, loss


def with_ray_tune(directory: Path, minutes: float) -> Settings:
    """Returns the settings that plain Ray Tune recommends."""
    begun_s = time.monotonic()
    _, loss = trained(directory, SCHEDULE, 1337)
    good_enough = loss + KEEP * (UNTRAINED - loss)

    def settings(config: Settings) -> Settings:
        samples = config["share"] * SCHEDULE["batch_size"] * SCHEDULE["max_iters"]
        steps = 8 * round(samples / config["batch_size"] / 8)  # so that the last step is evaluated
        rate = config["learning_rate"]
        follow = {"lr_decay_iters": steps, "min_lr": rate / 10, "warmup_iters": round(0.05 * steps)}
        evaluate = {"max_iters": steps, "eval_interval": steps // 8}
        return (
            {"batch_size": config["batch_size"], "learning_rate": rate, "compile": config["compile"]}
            | follow
            | evaluate
        )

    def objective(config: Settings) -> None:
        for share, seconds, loss in run(directory, settings(config)):
            if share > 0:
                lost = max(0.0, loss - good_enough) / (UNTRAINED - good_enough)
                tune.report(
                    {"cost": seconds / share * (1 + 10 * lost), "loss": loss, "share": share, "s": seconds}
                )

    space = {
        "batch_size": tune.choice([6, 12, 24, 48, 96]),
        "learning_rate": tune.loguniform(5e-4, 8e-3),
        "share": tune.uniform(0.25, 1.0),
        "compile": tune.choice([False, True]),
    }
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    tuner = tune.Tuner(
        tune.with_resources(objective, {"cpu": 2}),  # else Ray gives a script one thread
        param_space=space,
        tune_config=tune.TuneConfig(
            search_alg=OptunaSearch(metric="cost", mode="min"),
            scheduler=ASHAScheduler(metric="loss", mode="min", time_attr="training_iteration", max_t=8),
            num_samples=-1,
            time_budget_s=60 * minutes - (time.monotonic() - begun_s),
            max_concurrent_trials=1,
        ),
        run_config=tune.RunConfig(storage_path=tempfile.mkdtemp(), verbose=0),
    )
    ended = tuner.fit().get_dataframe().dropna(subset=["loss"])
    ray.shutdown()
    whole = ended[(ended["share"] >= 1) & (ended["loss"] <= good_enough)]
    print(f"Ray Tune: {len(ended)} trials, {len(whole)} good enough (at most {good_enough:.3f})", flush=True)
    if whole.empty:
        return SCHEDULE
    best = whole.loc[whole["s"].idxmin()]
    return settings({name: best[f"config/{name}"] for name in space})


def with_autotune(directory: Path, minutes: float) -> Settings:
    """Returns the settings that `autotune` confirms, else the recipe's own."""
    session = Path(tempfile.mkdtemp(), "session")
    options = ["-y", "--time", f"{minutes:g}m", "--session", str(session)]
    train = [sys.executable, "train.py", *RECIPE.split(), *flags(EVALUATED), *flags(SCHEDULE)]
    search = [sys.executable, "-m", "autotune", "search", *options, "--", *train]
    subprocess.run(search, cwd=directory, check=False)
    return autotune.open(session).winner or SCHEDULE


SIDES: Mapping[str, Callable[[Path, float], Settings]] = {
    "autotune": with_autotune,
    "ray-tune": with_ray_tune,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", choices=SIDES)
    given = parser.parse_args()
    directory = given.directory.resolve()
    for repetition in range(given.repetitions):
        recommended = {
            side: find(directory, given.minutes) for side, find in SIDES.items() if given.only in {None, side}
        }
        for side, settings in recommended.items():
            print(f"{side} recommends {' '.join(flags(settings))}", flush=True)
        for seed in SEEDS:
            for side, settings in {"recipe": SCHEDULE, **recommended}.items():
                seconds, loss = trained(directory, settings, 10 * seed + repetition)
                line = {"repetition": repetition, "side": side, "seconds": round(seconds, 1), "loss": loss}
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
