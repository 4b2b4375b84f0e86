"""Trains and scores models to compare precisions: the baseline, and the recommended settings in each.

Every model has its own directory. Finished models are kept, so a kill loses only the running one.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from autotune.compare import results
from autotune.compare.results import BASELINE, Model
from autotune.core import files, secrecy, units
from autotune.core.errors import EvaluationError, InputError
from autotune.core.measurement import Measurement
from autotune.core.settings import PRECISION, Config, Setting
from autotune.core.trial import Outcome, Status
from autotune.display import rows, view
from autotune.judging.decisions import confirm
from autotune.judging.decisions.history import History
from autotune.storage.identity import read_verdict, set_aside
from autotune.storage.layout import ModelDir
from autotune.storage.records import read_records
from autotune.storage.store import StoredSession
from autotune.trials import attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Order
from autotune.trials.report import TrialReport
from autotune.trials.runner import GUARD
from autotune.trials.setup import TrainingSetup

_SAY_EVERY_S = 10.0
_LONGEST = 300  # characters of a scorer's error
_NO_SCORES = frozenset({"studies", "seconds", "reports_per_s", "peak_memory_bytes", "parameters"})
_ITEMS = "_items"


@dataclass(frozen=True)
class Contender:
    label: str
    config: Config
    seed: int = 0  # added to that of the settings

    @property
    def name(self) -> str:
        return results.name_of(self.label, self.seed)


def contenders(history: History, precisions: Iterable[str], seeds: int = 1) -> list[Contender]:
    """Returns the baseline, and the recommended settings in each of `precisions` that differ from it.

    Each comes with `seeds` seeds, ordered by seed, so that an interrupted comparison has equally many of
    each. Raises InputError if nothing is recommended yet.
    """
    space, best = history.space, confirm.recommended(history)
    if best is None:
        raise InputError("nothing to compare: the baseline has not completed")
    baseline = {**space.baseline_config, PRECISION: space.baseline[PRECISION]}
    others = [Contender(name, {**best[0].config, PRECISION: name}) for name in precisions]
    same = space.settings(baseline)
    once = [Contender(BASELINE, baseline), *(c for c in others if space.settings(c.config) != same)]
    return [replace(contender, seed=seed) for seed in range(seeds) for contender in once]


class ModelLength(NamedTuple):
    samples: int
    epochs: int | None = None  # if the length was given in epochs


def known_length(session: StoredSession, facts: Mapping[str, Any]) -> ModelLength | None:
    """Returns the length of existing models that were trained under these `facts`; None if there are none."""
    for place in session.comparison.models:
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            then = json.loads(files.read(place.plan_file))
            if not _changed(then, facts):
                return ModelLength(int(then["samples"]), then.get("epochs"))
    return None


def _changed(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns the names that differ between two plans; names that `then` lacks are not compared."""
    return [name for name, value in now.items() if then.get(name, value) != value]


@dataclass(frozen=True)
class _Job:
    """A model to train and score. Its `plan` holds everything that its figures depend on."""

    contender: Contender
    place: ModelDir
    order: Order
    plan: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.contender.name

    def changed(self) -> list[str]:
        try:
            return _changed(json.loads(files.read(self.place.plan_file)), self.plan)
        except (OSError, ValueError, AttributeError):
            return ["plan"]


class Comparison:
    """Trains and scores models of one `length` for a session whose lock is held; passes progress to `say`.

    `facts` are what figures depend on besides the settings. `training` has the search's settings.
    """

    def __init__(
        self,
        session: StoredSession,
        training: TrainingSetup,
        length: ModelLength,
        facts: Mapping[str, Any],
        say: Callable[[str], None],
    ) -> None:
        self._session, self._space, self._training = session, training.space, training
        self._length, self._facts, self._say = length, facts, say
        self._baseline = self._with_epochs(self._space.baseline)
        self._server = ForkServer(training.workload.preload)

    def run(self, contender: Contender) -> bool:
        """Trains and scores a model, or does what is left of that; returns True if it is then complete."""
        job = self._job(contender)
        is_changed, verdict = bool(job.changed()), read_verdict(job.place)
        existing = None if is_changed else results.RESULT.read(job.place.result_file)
        if existing is not None and self._is_whole(existing):
            self._say(f"{job.name}: already done")
            return True
        has_failed = verdict is not None and verdict[0].status is not Status.COMPLETED
        is_lost = verdict is not None and not job.place.work.is_dir()
        if is_changed or has_failed or is_lost:
            shutil.rmtree(job.place.root, ignore_errors=True)
            job.place.root.mkdir(parents=True)
            files.write_whole(job.place.plan_file, json.dumps(job.plan))
            verdict = None
        model = self._trained(job, verdict)
        if model.completed:
            model = self._scored(job, model)
        results.RESULT.write(job.place.result_file, model)
        is_whole = self._is_whole(model)
        if is_whole and not self._training.options.keep_checkpoints:
            shutil.rmtree(job.place.work, ignore_errors=True)
        return is_whole

    def keep_only(self, contenders: Iterable[Contender]) -> None:
        """Sets aside models made under other conditions, with which new ones cannot be compared."""
        jobs = {contender.name: self._job(contender) for contender in contenders}
        for place in self._session.comparison.models:
            job = jobs.get(place.name)
            if changed := job.changed() if job else ["settings"]:
                reason, aside = f"made with other {', '.join(changed)}", set_aside(place.root)
                self._say(f"{place.name}: {reason}, so it is set aside as {aside.name}")

    def _with_epochs(self, settings: Config) -> dict[str, Setting]:
        epochs, name = self._length.epochs, self._training.workload.epochs
        return {**settings, name: epochs} if epochs and name else dict(settings)

    def _job(self, contender: Contender) -> _Job:
        """Returns a contender's job: alone on the device, its checkpoint kept to be scored."""
        space = self._space.model_copy(update={"baseline": self._baseline})
        training = replace(self._training, space=space)
        place, settings = self._session.model_dir(contender.name), self._space.settings(contender.config)
        settings = self._with_epochs(settings)  # even if epochs are a knob
        contender = replace(contender, config={name: settings[name] for name in contender.config})
        order = replace(
            training.order(contender.config, place, seed=contender.seed, samples=self._length.samples),
            keep_work=True,
        )
        plan = {
            "settings": order.settings,
            "samples": order.ends.samples,
            **({"epochs": self._length.epochs} if self._length.epochs else {}),
            "quality": order.metric.name,
            **self._facts,
        }
        return _Job(contender, place, order, plan)

    def _trained(self, job: _Job, verdict: tuple[Outcome, Measurement] | None) -> Model:
        """Trains the model, unless an interrupted command has, with this `verdict`."""
        order, place = job.order, job.place
        unit, printed_s = order.metric.unit, time.monotonic()

        def hear(report: TrialReport) -> None:
            nonlocal printed_s
            if time.monotonic() - printed_s >= _SAY_EVERY_S:
                printed_s, rate = time.monotonic(), report.measurement.throughput
                speed = f", {rate.samples_per_s:.1f} {unit}/s" if rate else ""
                self._say(f"{job.name}: {report.samples:,} of {order.ends.samples:,} {unit}{speed}")

        if verdict is None:
            length = f"{order.ends.samples:,} {unit}"
            self._say(f"{job.name}: training for {length} with {view.knobs(job.contender.config)}")
            verdict = attempt.run_alone(order, self._server, hear)
        outcome, measured = verdict
        figures = rows.run_figures(measured, self._space.objective).line(unit, order.metric.name)
        is_done = outcome.status is Status.COMPLETED
        self._say(f"{job.name}: training {outcome}, {figures if is_done else outcome.reason}")
        return Model(
            label=job.contender.label,
            config=job.contender.config,
            outcome=outcome,
            training=measured,
            samples=order.ends.samples,
            seed=job.contender.seed,
            steps=results.summarise(read_records(place)),
            checkpoint_bytes=files.disk_usage_bytes(place.work) or None,
        )

    def _scored(self, job: _Job, model: Model) -> Model:
        """Returns `model` with its scores over the test split, or unchanged if it cannot be scored."""
        program = self._training.workload.program
        if program is None:
            return model
        command = program.evaluate(job.place.work, job.order.settings, job.place.reports_file)
        self._say(f"{job.name}: writing the reports of the test split")
        try:
            evaluated = evaluate(command, job.place.log)
        except EvaluationError as error:
            self._say(f"{job.name}: could not be scored, {error}; run the same command to try again")
            return model
        self._say(f"{job.name}: the reports are written")
        return replace(model, **evaluated)

    def _is_whole(self, model: Model) -> bool:
        return model.completed and (bool(model.scores) or self._training.workload.program is None)


def evaluate(command: Sequence[str], log: Path) -> dict[str, Any]:
    """Runs `command` and returns the scores that it prints; appends its stderr to `log`.

    `Program.evaluate` describes the output. The command and its children end with this process. Raises
    EvaluationError if the command fails or prints no scores.
    """
    guard = subprocess.Popen(("/bin/sh", "-c", GUARD), stdin=subprocess.PIPE, process_group=0)  # noqa: S603 - a constant
    try:
        done = subprocess.run(  # noqa: S603 - the workload's own command
            command, stdin=subprocess.DEVNULL, capture_output=True, process_group=guard.pid, check=False
        )
    finally:
        guard.communicate()
    stderr = secrecy.hide_secrets(done.stderr.decode(errors="replace"), os.environ)
    with log.open("a", encoding="utf-8") as file:
        file.write(stderr)
    if done.returncode:
        lines = [line.strip() for line in stderr.split("\n") if line.strip()]
        last = lines[-1] if lines else "it printed nothing"
        raise EvaluationError(f"exit code {done.returncode}: {last[-_LONGEST:]}")
    try:
        return _figures(json.loads(done.stdout))
    except (ValueError, AttributeError):
        raise EvaluationError("it printed no JSON object") from None


def _figures(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns fields of a `results.Model`: scores on the test split, and the cost of writing its reports."""
    numbers, items = units.numbers(values), {}
    for name, value in values.items():
        each = [units.number(item) for item in value] if isinstance(value, list) else []
        if name.endswith(_ITEMS) and each and None not in each:
            items[name.removesuffix(_ITEMS)] = tuple(each)
    whole: dict[str, Any] = {
        name: int(numbers[name]) for name in ("peak_memory_bytes", "parameters") if name in numbers
    }
    return {
        "scores": {name: value for name, value in numbers.items() if name not in _NO_SCORES},
        "reports_per_s": numbers.get("reports_per_s"),
        "items": items,
        "collapsed": values.get("collapsed") is True,
        **whole,
    }
