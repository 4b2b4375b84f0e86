"""Measures what the driver itself computes for a trial, by how many trials have ended before it.

    python benchmarks/bench_driver.py [--ended 50 200 1000 3000 10000] [--slots 4] [--trials 20] [--profile]

A real search of R2Gen's space for GPUs, with its study in SQLite and its lines on a screen, but without Ray:
trials end at once, with figures made up from their settings. Prints CPU milliseconds a trial, and where they
go: the history (with what is decided when a trial ends), the proposal, the sampler's memory of results, the
study and files, the screen. `resume` is the CPU time in seconds until a search of so many trials goes on.
"""

import argparse
import cProfile
import io
import math
import pstats
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import optuna
from rich.console import Console

from autotune.core.measurement import Evaluation, Measurement, Throughput
from autotune.core.settings import Config
from autotune.core.trial import Failure, Outcome, Status, Trial
from autotune.display.console import Screen, screen
from autotune.display.snapshot import RUNNING, Snapshot
from autotune.judging.decisions import stopping
from autotune.searcher.ports import Environment, SearchOptions
from autotune.searcher.sampler import Sampler
from autotune.searcher.search import Search
from autotune.sessions import prepare
from autotune.space import builtin, configurations
from autotune.space.space import Space
from autotune.storage import studies
from autotune.storage.json_file import JsonFile
from autotune.storage.study_file import SearchPlan

_LIMIT_BYTES = 80 * 2**30
_PARTS = ("history", "proposal", "sampler", "storage", "screen")


class Parts:
    """CPU seconds by part; a part that another one calls does not count for its caller."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since_s = process_time()

    def _switch(self) -> None:
        now_s = process_time()
        if self._open:
            self.seconds[self._open[-1]] += now_s - self._since_s
        self._since_s = now_s

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._switch()
        self._open.append(name)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `function`, with its time counted for the part `name`."""

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                return function(*args, **kwargs)

        return timed

    def watch(self, owner: object, name: str, *functions: str) -> None:
        for function in functions:
            setattr(owner, function, self.timed(name, getattr(owner, function)))


def measured(space: Space, config: Config, rng: random.Random) -> tuple[Outcome, Measurement]:
    """Returns how a trial of `config` ends, made up from its settings."""
    size, lanes = int(config["micro_batch_size"] or 1), int(config["num_workers"] or 0)
    is_half = config["precision"] in ("bf16", "fp16")
    saves = 0.3 if config["activation_checkpointing"] else 1.0
    peak = int(2**30 * (4 + 0.9 * size * saves * (0.6 if is_half else 1.0)))
    if peak > _LIMIT_BYTES:
        failed = Outcome(Status.FAILED, Failure.OOM, "CUDA out of memory")
        return failed, Measurement(memory_limit_bytes=_LIMIT_BYTES)
    speed = 100 * size / (size + 20) * (1.8 if is_half else 1.0) * (0.8 if saves < 1 else 1.0)
    speed = min(speed, 60 * (1 + lanes)) * (1.1 if config["channels_last"] else 1.0) * rng.gauss(1, 0.01)
    rate = float(config["learning_rate"] or 0) / space.learning_rate(config, 1.0)
    final = 0.3 * math.exp(-0.1 * math.log(rate) ** 2) * rng.gauss(1, 0.01)
    samples, count = space.samples(config), space.budget.evaluations_per_trial
    curve = tuple(
        Evaluation(samples * n // count, samples * n / count / speed, final * (1 - 0.5**n))
        for n in range(1, count + 1)
    )
    measurement = Measurement(
        throughput=Throughput(speed, 0.01 * speed, 200, samples / speed),
        quality=curve[-1].quality,
        quality_samples=samples,
        curve=curve,
        samples=samples,
        peak_memory_bytes=peak,
        memory_limit_bytes=_LIMIT_BYTES,
        device="GPU",
    )
    return Outcome(Status.COMPLETED), measurement


class Bench:
    """A search in a directory, which is filled with trials that ended, and goes on from there."""

    def __init__(self, place: Path, most: int, slots: int) -> None:
        self.space = prepare.read_space(builtin.space_file("gpu"), {}).revised(budget={"trials": 2 * most})
        self.parts, self._slots, self._place = Parts(), slots, place
        self._rng, self._clock_s = random.Random(0), 0.0
        self.study = studies.open_study(place / "study.db", self.space)
        studies.set_plan(self.study, SearchPlan(2 * most, None))
        self._search: Search | None = None

    def fill(self, ended: int) -> None:
        """Adds random trials that have ended, so that there are so many."""
        missing, first = ended - len(self.study.get_trials(deepcopy=False)), 0
        memory = optuna.create_study(directions=["maximize", "maximize"])
        for number in range(max(0, missing)):
            is_first = not number and not len(self.study.get_trials(deepcopy=False))
            config = self.space.baseline_config if is_first else self._random()
            outcome, measurement = measured(self.space, config, self._rng)
            trial = Trial(number, config, outcome, measurement, seconds=200.0)
            studies.write(memory, self.space, trial, ())
        self.study.add_trials(memory.get_trials()[first:])

    def _random(self) -> Config:
        drawn = {name: knob.drawn_from for name, knob in self.space.drawn_knobs.items()}
        while True:
            values = {
                name: self._rng.choice(one.choice) if one.choice else math.exp(self._rng.uniform(-0.7, 0.7))
                for name, one in drawn.items()
            }
            config = configurations.configure(self.space, values)
            if self.space.violation(config) is None:
                return config

    def resume(self) -> None:
        """Opens the search over the study as it is."""
        publish = partial(JsonFile(stopping.Threshold).write, self._place / "threshold.json")
        self._screen = self._new_screen()
        environment = Environment(
            publish=self.parts.timed("storage", publish),
            settle=self.parts.timed("storage", partial(studies.checkpoint, self._place / "study.db")),
            clock=lambda: self._clock_s,
        )
        options = SearchOptions(memory_limit_bytes=_LIMIT_BYTES)
        self._search = Search(self.space, self.study, self._screen, options, environment)
        self._screen.restore(self._search.history.trials)
        self.parts.watch(self._screen, "screen", "note", "started", "progress", "ended")
        self.parts.seconds.clear()

    def _new_screen(self) -> Screen:
        plan = SearchPlan(1, None)
        return screen(
            Console(file=io.StringIO()),
            Snapshot("s", "GPU", RUNNING, self.space, plan, (), (), (), None, None),
        )

    def run(self, trials: int) -> None:
        """Runs so many trials, as many at a time as there are slots."""
        search, running = self._search, list[Trial]()
        assert search is not None
        for _ in range(trials + self._slots - 1):
            while len(running) < self._slots:
                with self.parts.part("proposal"):
                    trial = search.next()
                if trial is None:
                    break
                running.append(trial)
            ending = running.pop(self._rng.randrange(len(running)))
            outcome, measurement = measured(self.space, ending.config, self._rng)
            samples = self.space.samples(ending.config)
            beaten = stopping.verdict(measurement, search.threshold, samples, ending.config)
            self._clock_s += 10.0
            with self.parts.part("history"):
                search.end(ending.number, beaten or outcome, measurement)
        for trial in running:
            with self.parts.part("history"):
                search.end(trial.number, *measured(self.space, trial.config, self._rng))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ended", type=int, nargs="+", default=[50, 200, 1000, 3000, 10_000])
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--trials", type=int, default=20, help="measured ones")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args(arguments)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(f"{'ended':>6} {'ms a trial':>10} " + " ".join(f"{name:>9}" for name in _PARTS) + "    resume")
    with TemporaryDirectory() as directory:
        bench = Bench(Path(directory), max(given.ended), given.slots)
        bench.parts.watch(studies, "storage", "begin", "end", "set_plan", "mark_shared")
        bench.parts.watch(Sampler, "sampler", "started", "ended")
        for ended in given.ended:
            bench.fill(ended)
            before_s = process_time()
            bench.resume()
            resume_s = process_time() - before_s
            profile = cProfile.Profile()
            if given.profile:
                profile.enable()
            bench.run(given.trials)
            profile.disable()
            count = given.trials + given.slots - 1
            each = {name: 1000 * bench.parts.seconds[name] / count for name in _PARTS}
            print(
                f"{ended:6} {sum(each.values()):10.1f} "
                + " ".join(f"{each[name]:9.1f}" for name in _PARTS)
                + f" {resume_s:8.1f}s",
                flush=True,
            )
            if given.profile:
                pstats.Stats(profile).sort_stats("cumulative").print_stats(60)


if __name__ == "__main__":
    main()
