"""Compares `autotune search` with what one would write instead: plain Ray Tune with OptunaSearch and ASHA.

    python benchmarks/against_ray_tune.py nanogpt|makemore DIRECTORY [--minutes 40] [--repetitions 3]
        [--only ray-tune]

DIRECTORY is a clone of nanoGPT with prepared character data, or of makemore. Both sides get the same command
line, the same time, and the same knobs: batch, rate, length and torch.compile or loader workers, of which
`autotune` finds out by itself. Ray Tune is told the loss that counts as good enough: the recipe's own, from a
run within its time, and 1% of what the training improves, which is the limit of `autotune` too. It recommends
the quickest whole training that was good enough. Then the script alone trains with the recipe and with each
recommendation, in turns, with three other seeds; the times are of whole runs.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nanogpt_alone
import ray
from nanogpt_alone import flags
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

import autotune

KEEP = 0.01  # share of the improvement that may be lost
SEEDS = (11, 12, 13)
WHOLE = 0.99  # of the steps: the last evaluation may come one before the end

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Script:
    """A public training, and what plain Ray Tune has to be told about it."""

    words: list[str]  # after the Python, with the settings of its recipe
    recipe: Settings
    command: Callable[[Path, str, Settings, int], list[str]]  # of a seed, writing into a directory
    evaluated: str  # a line of its output: the step, and the loss
    steps: str  # the setting that ends it
    untrained: float  # loss of a uniform guess
    space: Settings
    settings: Callable[[Settings], Settings]  # of a point in that space


EVALUATED = {"eval_iters": 20}
NANOGPT = {"batch_size": 12, "max_iters": 2000, "lr_decay_iters": 2000, "learning_rate": 1e-3}
MAKEMORE = {"batch_size": 32, "max_steps": 2001, "learning_rate": 5e-4, "num_workers": 4}


def nanogpt_settings(point: Settings) -> Settings:
    samples = point["share"] * NANOGPT["batch_size"] * NANOGPT["max_iters"]
    steps = 8 * round(samples / point["batch_size"] / 8)  # so that the last step is evaluated
    rate = point["learning_rate"]
    follow = {"lr_decay_iters": steps, "min_lr": rate / 10, "warmup_iters": round(0.05 * steps)}
    evaluate = {"max_iters": steps, "eval_interval": steps // 8}
    named = {"batch_size": point["batch_size"], "learning_rate": rate, "compile": point["compile"]}
    return named | follow | evaluate


def nanogpt_command(directory: Path, scratch: str, settings: Settings, seed: int) -> list[str]:
    return nanogpt_alone.command(directory, scratch, {**EVALUATED, **settings}, seed)


def makemore_settings(point: Settings) -> Settings:
    samples = point["share"] * MAKEMORE["batch_size"] * MAKEMORE["max_steps"]
    steps = 500 * max(1, round(samples / point["batch_size"] / 500)) + 1  # evaluated every 500 steps
    named = {name: point[name] for name in ("batch_size", "learning_rate", "num_workers")}
    return {**named, "max_steps": steps}


def makemore_command(directory: Path, scratch: str, settings: Settings, seed: int) -> list[str]:
    given = {**settings, "seed": seed, "work_dir": scratch}
    words = flags({name.replace("_", "-"): value for name, value in given.items()})
    return [sys.executable, "-u", str(directory / "makemore.py"), *words]


SCRIPTS = {
    "nanogpt": Script(
        words=["train.py", *nanogpt_alone.RECIPE.split(), *flags(EVALUATED), *flags(NANOGPT)],
        recipe=NANOGPT,
        command=nanogpt_command,
        evaluated=r"step (\d+): .* val loss ([0-9.]+)",
        steps="max_iters",
        untrained=math.log(65),
        space={
            "batch_size": tune.choice([6, 12, 24, 48, 96]),
            "learning_rate": tune.loguniform(5e-4, 8e-3),
            "share": tune.uniform(0.25, 1.0),
            "compile": tune.choice([False, True]),
        },
        settings=nanogpt_settings,
    ),
    "makemore": Script(
        words=["makemore.py", "--max-steps", "2001"],
        recipe=MAKEMORE,
        command=makemore_command,
        evaluated=r"step (\d+) train loss: .* test loss: ([0-9.]+)",
        steps="max_steps",
        untrained=math.log(27),
        space={
            "batch_size": tune.choice([16, 32, 64, 128, 256]),
            "learning_rate": tune.loguniform(2.5e-4, 8e-3),
            "share": tune.uniform(0.25, 1.0),
            "num_workers": tune.choice([0, 1, 2, 4]),
        },
        settings=makemore_settings,
    ),
}


@dataclass(frozen=True)
class Task:
    """A script in its directory, and the minutes to search for better settings."""

    script: Script
    directory: Path
    minutes: float

    def run(self, settings: Settings, seed: int = 1337) -> Iterator[tuple[float, float, float]]:
        """Trains by the script alone; yields share of the steps, seconds so far and validation loss."""
        with tempfile.TemporaryDirectory() as scratch:
            alone = self.script.command(self.directory, scratch, settings, seed)
            begun_s = time.monotonic()
            with subprocess.Popen(alone, cwd=self.directory, stdout=subprocess.PIPE, text=True) as process:
                try:
                    for line in process.stdout or ():
                        if found := re.match(self.script.evaluated, line):
                            share = int(found[1]) / settings[self.script.steps]
                            yield share, time.monotonic() - begun_s, float(found[2])
                finally:
                    process.kill()

    def trained(self, settings: Settings, seed: int) -> tuple[float, float]:
        """Returns the seconds of a whole training, and its final loss."""
        begun_s = time.monotonic()
        *_, (_, _, loss) = self.run(settings, seed)
        return time.monotonic() - begun_s, loss

    def with_ray_tune(self) -> Settings:
        """Returns the settings that plain Ray Tune recommends."""
        begun_s, script = time.monotonic(), self.script
        _, loss = self.trained(script.recipe, 1337)
        good_enough = loss + KEEP * (script.untrained - loss)

        def objective(point: Settings) -> None:
            for share, seconds, loss in self.run(script.settings(point)):
                if share > 0:
                    lost = max(0.0, loss - good_enough) / (script.untrained - good_enough)
                    cost = seconds / share * (1 + 10 * lost)
                    tune.report({"cost": cost, "loss": loss, "share": share, "s": seconds})

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        tuner = tune.Tuner(
            tune.with_resources(objective, {"cpu": 2}),  # else Ray gives a script one thread
            param_space=dict(script.space),
            tune_config=tune.TuneConfig(
                search_alg=OptunaSearch(metric="cost", mode="min"),
                scheduler=ASHAScheduler(metric="loss", mode="min", time_attr="training_iteration", max_t=8),
                num_samples=-1,
                time_budget_s=60 * self.minutes - (time.monotonic() - begun_s),
                max_concurrent_trials=1,
            ),
            run_config=tune.RunConfig(storage_path=tempfile.mkdtemp(), verbose=0),
        )
        ended = tuner.fit().get_dataframe().dropna(subset=["loss"])
        ray.shutdown()
        whole = ended[(ended["share"] > WHOLE) & (ended["loss"] <= good_enough)]
        print(
            f"Ray Tune: {len(ended)} trials, {len(whole)} good enough (at most {good_enough:.3f})", flush=True
        )
        if whole.empty:
            return script.recipe
        best = whole.loc[whole["s"].idxmin()]
        return script.settings({name: best[f"config/{name}"] for name in script.space})

    def with_autotune(self) -> Settings:
        """Returns the settings that `autotune` confirms, else the recipe's own."""
        session = Path(tempfile.mkdtemp(), "session")
        options = ["-y", "--time", f"{self.minutes:g}m", "--session", str(session)]
        train = [sys.executable, *self.script.words]
        search = [sys.executable, "-m", "autotune", "search", *options, "--", *train]
        subprocess.run(search, cwd=self.directory, check=False)
        return autotune.open(session).winner or self.script.recipe


SIDES: Mapping[str, Callable[[Task], Settings]] = {
    "autotune": Task.with_autotune,
    "ray-tune": Task.with_ray_tune,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("script", choices=SCRIPTS)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", choices=SIDES)
    given = parser.parse_args()
    script = SCRIPTS[given.script]
    task = Task(script, given.directory.resolve(), given.minutes)
    for repetition in range(given.repetitions):
        recommended = {name: find(task) for name, find in SIDES.items() if given.only in {None, name}}
        for name, settings in recommended.items():
            print(f"{name} recommends {' '.join(flags(settings))}", flush=True)
        for seed in SEEDS:
            for name, settings in {"recipe": script.recipe, **recommended}.items():
                seconds, loss = task.trained(settings, 10 * seed + repetition)
                line = {"repetition": repetition, "side": name, "seconds": round(seconds, 1), "loss": loss}
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
