"""A command that trains: run, heard from every side, and told as records."""

import glob
import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from autotune.core.settings import SEED, effective_batch
from autotune.inside import inbox as inboxes
from autotune.inside import stops
from autotune.inside.inbox import SITE, Inbox
from autotune.inside.messages import Message, Stamped
from autotune.inside.site import autotune_wire as wire
from autotune.workloads.command import ending, files, line, spec
from autotune.workloads.command.counting import Checkpoint, Counter
from autotune.workloads.command.follow import HELD_BACK, Follower
from autotune.workloads.command.process import Line, Process
from autotune.workloads.command.readers import Patterns
from autotune.workloads.command.spec import Spec
from autotune.workloads.command.timeline import (
    Happened,
    Reported,
    SamplesSeen,
    Scores,
    Step,
    Timeline,
    evaluated_s,
    known_s,
)

_LOOK_S = 0.05  # more often would take time from the training
_STEPS_REMEMBERED = 50
_GRACE_S = 10.0  # to write a checkpoint in, and for what is left behind to end by itself
_FAILED_GRACE_S = 1.0
# A little before a trial without an evaluation is given up: here it is known what was looked for.
_OVERDUE_TIMES, _OVERDUE_STEPS = 2.7, 90
_MOST_UNSTEPPED = 10  # evaluations: some scripts begin with a few
_STEPS, _SAMPLES = "steps", "samples"
# What the hook calls it, and what the tuner does.
_NAMES = {"loss": "train_loss", "flops": "step_flops", "queued": "is_queued", "compiling": "is_compiling"}
_GOES_ON = "the command has ended, and what it had started went on: it must train in the foreground"
_NO_STEP = (
    "no optimizer step was seen: PyTorch's are, from version 2.0 on; else give workload.samples or "
    "workload.steps a pattern"
)


@dataclass(frozen=True)
class Call:
    """A command with its settings, ready to be started."""

    arguments: list[str]
    directory: Path
    environment: dict[str, str]


def call(spec_: Spec, directory: Path, values: Mapping[str, Any], *, resumes: bool) -> Call:
    """The command of `spec_` with `values` for its placeholders; it has this process's environment, too."""
    more = spec_.resume.arguments if resumes and spec_.resume else ()
    arguments = [*line.words(spec_.run, values), *line.flags(spec_.flags, values), *line.words(more, values)]
    python = spec_.python or sys.executable
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(filter(None, (str(Path(python).parent), os.environ.get("PATH")))),
        **{name: line.word(text, values) for name, text in spec_.environment.items()},
    }
    if arguments[0] in {"python", "python3"}:
        arguments[0] = python
    return Call(arguments, directory, environment)


def values_of(spec_: Spec, settings: Mapping[str, Any], workdir: Path | str) -> dict[str, Any]:
    """What every placeholder stands for."""
    trial = (
        {} if (samples := os.environ.get(wire.TRIAL_SAMPLES)) is None else {spec.TRIAL_SAMPLES: int(samples)}
    )
    whole = {} if spec_.training_samples is None else {spec.TRAINING_SAMPLES: spec_.training_samples}
    own = files.paths(spec_.files, Path(workdir))
    return {**trial, **whole, spec.WORKDIR: str(workdir), **own, **dict(line.flat(settings))}


def put_in(settings: Mapping[str, Any], objects: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The settings that are arguments of the `objects` that a script makes."""
    return {name: found for name in objects if isinstance(found := settings.get(name), Mapping)}


def fit(
    spec_: Spec, directory: Path, settings: Mapping[str, Any], workdir: Path, objects: Sequence[str] = ()
) -> Iterator[Stamped]:
    """Runs the command and yields what it does: steps, evaluations, and what it reports by itself.

    Settings below one of the `objects` are put in place of the arguments of such, wherever it makes one.
    A command that cannot go on from its checkpoint begins anew, once in a workdir.
    Raises what the script has raised, or why nothing is known of it. Closed, it ends all that was started;
    asked to stop, it does so, too, yields what the command has done until then, and raises StoppedError.
    """
    workdir = workdir.absolute()  # the command runs elsewhere
    try:
        yield from _attempt(spec_, directory, settings, workdir, objects)
    except ending.ResumeError as error:
        if error.was_killed or not _checkpoint(spec_, directory, settings, workdir).set_aside():
            raise
        print(f"autotune: {error}; it begins anew", flush=True)
    else:
        return
    yield from _attempt(spec_, directory, settings, workdir, objects)


def _places(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values for the placeholders of a path in which `*` stands for any characters."""
    return {name: glob.escape(value) if isinstance(value, str) else value for name, value in values.items()}


def _checkpoint(spec_: Spec, directory: Path, settings: Mapping[str, Any], workdir: Path) -> Checkpoint:
    places = _places(values_of(spec_, settings, workdir))
    file = None if spec_.resume is None else str(directory / line.word(spec_.resume.file, places))
    return Checkpoint(file, workdir)


def _attempt(
    spec_: Spec, directory: Path, settings: Mapping[str, Any], workdir: Path, objects: Sequence[str]
) -> Iterator[Stamped]:
    """What the command does from its checkpoint on, where it has one."""
    values = values_of(spec_, settings, workdir)
    files.write(spec_.files, directory, values, workdir)
    checkpoint = _checkpoint(spec_, directory, settings, workdir)
    made, begun = call(spec_, directory, values, resumes=checkpoint.exists), checkpoint.counts()
    if checkpoint.exists:
        print(f"autotune: goes on from the checkpoint, after {begun.samples} samples", flush=True)
    counter = Counter(begun, int(settings.get(spec.EFFECTIVE_BATCH) or effective_batch(dict(settings))))
    follower = spec_.file and Follower(
        spec_.file[0], str(directory / line.word(spec_.file[1], _places(values))), spec_.scores
    )
    samples = int(values.get(spec.TRIAL_SAMPLES) or 0)
    arguments = put_in(settings, objects)
    with Inbox() as inbox:
        run = _Run(spec_, inbox, counter, checkpoint, follower, to_take=_paths(arguments))
        unit = os.environ.get(wire.UNIT, "samples")
        of_trial = inboxes.of_trial(workdir, settings, samples, unit=unit)
        of_trial[wire.BEGUN] = str(counter.counts.get(unit, 0))
        environment = {**made.environment, **_of_hook(spec_, settings), **of_trial, **inbox.environment()}
        if objects:
            environment[wire.OVERRIDES] = json.dumps(arguments)
        process = Process(made.arguments, made.directory, environment, wire.SOCKET, run.hear)
        try:
            yield from run.records(process, samples)
        finally:
            inbox.tell_to_stop()
            process.end(_GRACE_S)
            run.conclude()


def _paths(arguments: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """Every one of the arguments by its name, `loader.num_workers`, that something has to take."""
    own = {name: found for name, found in arguments.items() if name != wire.IN_TRIAL}
    return frozenset(f"{name}.{key}" for name, found in own.items() for key in found)


def _of_hook(spec_: Spec, settings: Mapping[str, Any]) -> dict[str, str]:
    """The variables by which a command has the hook in it, and tells at once what it prints."""
    own = spec_.environment.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
    seed = {wire.SEED: str(settings.get(SEED) or 0)} if spec_.seed else {}
    is_told = spec_.file is not None and spec_.file[0] in HELD_BACK
    return {
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(SITE), own))),
        **seed,
        **({wire.LOGGED: json.dumps(list(spec_.scores.values()))} if is_told else {}),
    }


class _Run:
    """Hears a command from its output, its files and the hook in it, and makes records of that."""

    def __init__(
        self,
        spec_: Spec,
        inbox: Inbox,
        counter: Counter,
        checkpoint: Checkpoint,
        follower: Follower | None,
        *,
        to_take: frozenset[str],
    ) -> None:
        self._to_take = to_take  # arguments that nothing has taken yet
        self._spec, self._inbox = spec_, inbox
        self._counter, self._checkpoint, self._follower = counter, checkpoint, follower
        progress = {_SAMPLES: spec_.samples, _STEPS: spec_.steps}
        self._progress = Patterns({name: pattern for name, pattern in progress.items() if pattern})
        self._scores = Patterns(spec_.patterns)
        self._lines: SimpleQueue[tuple[Line, Happened]] = SimpleQueue()
        self._timeline = Timeline()
        self._steps_s: deque[float] = deque(maxlen=_STEPS_REMEMBERED)
        self._told: ending.Told | None = None
        self._resumes = checkpoint.exists
        self._evaluations = 0
        self._reports = self._counts_itself = False

    def hear(self, line_: Line) -> bool:
        """Takes a line of the output, in the thread that reads it; whether anything was found in it."""
        progress = self._progress.find(line_.text)
        if _STEPS in progress:
            self._lines.put((line_, Step(None)))
        if math.isfinite(samples := progress.get(_SAMPLES, math.nan)):
            self._lines.put((line_, SamplesSeen(int(samples))))
        if scores := self._scores.find(line_.text):
            self._lines.put((line_, Scores(scores)))
        return bool(progress or scores)

    def records(self, process: Process, trial_samples: int) -> Iterator[Stamped]:
        """The records, until the command has ended; raises what its end means."""
        until_s = math.inf
        while not process.is_over and time.monotonic() < until_s:
            if stops.is_asked():
                self._inbox.tell_to_stop()
                process.end(_GRACE_S)
                yield from self._rest()
                raise stops.StoppedError
            time.sleep(_LOOK_S)  # what has come meanwhile has stamps of its own
            heard_s = min(process.heard_s, self._inbox.heard_s())
            self._listen()
            yield from self._ready(min(heard_s, known_s(time.monotonic(), self._steps_s)))
            self._require_sense(process, trial_samples)
            if math.isinf(until_s) and process.code is not None:
                until_s = time.monotonic() + (_FAILED_GRACE_S if process.code else _GRACE_S)
        lacks = [_GOES_ON] if process.family() else []
        process.end(0.0)
        yield from self._rest()
        if process.code:
            raise self._of_exit(process, process.code)
        if found := self._lacks():
            raise ending.of_nothing([*lacks, *found], tuple(process.tail))

    def _rest(self) -> Iterator[Stamped]:
        """The records of all that a command has done that has ended."""
        self._inbox.finish()
        self._listen()
        yield from self._ready(math.inf)

    def _of_exit(self, process: Process, code: int) -> Exception:
        """Why the command has failed, and whether it was to go on from a checkpoint."""
        error = ending.of_exit(code, process.pid, self._told, tuple(process.tail))
        has_begun = self._counter.steps or not self._resumes
        return error if has_begun else ending.ResumeError(error, code)

    def conclude(self) -> None:
        """Counts what has come since, for who goes on from the checkpoint."""
        deque(self._rest(), maxlen=0)

    def _listen(self) -> None:
        """Takes what was said until now, and what was written."""
        while (message := self._inbox.get(0.0)) is not None:
            self._take(message)
        with suppress(Empty):
            while True:
                line_, happened = self._lines.get_nowait()
                is_late = isinstance(happened, Scores) and not line_.is_stamped
                ended_s = evaluated_s(line_.at_s, self._steps_s) if is_late else None
                self._timeline.add(line_.at_s if ended_s is None else ended_s, happened)
        for found in self._follower.look() if self._follower else ():
            self._timeline.add(found.at_s, Scores(found.scores))

    def _take(self, message: Message) -> None:
        self._to_take -= set(message.taken)
        if message.error is not None:  # of several processes the first one fails, the others for its failing
            self._told = self._told or ending.Told(message.error.type, message.error.message)
        elif message.record is not None:
            self._timeline.add(message.at_s, Reported(message.record))
        elif message.logged is not None and self._follower:
            if scores := self._follower.told(Path(message.logged.place), message.logged.scores):
                self._timeline.add(message.at_s, Scores(scores))
        elif message.step is not None and not (self._spec.samples or self._spec.steps):
            self._steps_s.append(message.at_s)
            self._timeline.add(message.at_s, Step(**vars(message.step)))

    def _ready(self, moment_s: float) -> Iterator[Stamped]:
        """The records of what had happened up to a moment."""
        for at_s, happened in self._timeline.until(moment_s):
            if (record := self._record(at_s, happened)) is not None:
                yield Stamped(record, at_s)
        self._checkpoint.look(self._counter, moment_s)

    def _record(self, at_s: float, happened: Happened) -> dict[str, Any] | None:
        counter = self._counter
        match happened:
            case Step():
                if self._counts_itself:
                    return None
                counter.step(at_s, happened.samples, happened.tokens)
                figures = {_NAMES.get(name, name): value for name, value in happened.figures.items()}
                return {**counter.counts, **figures}
            case SamplesSeen():
                return {"samples": counter.samples} if counter.said(at_s, happened.samples) else None
            case Scores():
                self._evaluations += 1
                # What nothing was trained for is no evaluation of the training.
                return {**counter.counts, **happened.scores} if counter.samples else None
            case Reported():
                self._reports = True
                self._counts_itself |= counter.reported(at_s, happened.record)
                return {**counter.counts, **happened.record}

    def _require_sense(self, process: Process, trial_samples: int) -> None:
        """Raises where a command trains on, and there is nothing to be learnt of it any more."""
        counter = self._counter
        if counter.steps and self._to_take:  # what takes them is made before the first step
            raise ending.of_nothing([self._untaken()], tuple(process.tail))
        is_far = trial_samples and counter.samples >= _OVERDUE_TIMES * trial_samples
        unscored = is_far and counter.steps >= _OVERDUE_STEPS and not self._evaluations and not self._reports
        unstepped = self._evaluations > _MOST_UNSTEPPED and not counter.steps and not self._reports
        if (unscored or unstepped) and (lacks := self._lacks()):
            far = f"no score came in {counter.samples} samples, of which a trial has {trial_samples}"
            raise ending.of_nothing([far, *lacks] if unscored else lacks, tuple(process.tail))

    def _lacks(self) -> list[str]:
        """What a command has not shown that began at the beginning."""
        if self._counter.begun:
            return []
        lacks = [] if self._counter.steps or self._reports else [self._no_step()]
        if self._follower:
            kind, place = self._spec.file or ("", "")
            found = [
                f"{name}: no {key!r} has come in {place}" for name, key in self._follower.missing.items()
            ]
            lacks += [f"workload.{kind}: {said}" for said in found]
        for name, pattern in self._scores.missing.items():
            text = self._scores.no_number.get(name)
            why = "matched no line" if text is None else f"found no number, but {ending.short(text, 30)!r}"
            lacks.append(f"workload.quality.{name}: {ending.short(pattern, 60)!r} {why}")
        is_silent = self._spec.quality == spec.REPORTED and not self._reports
        return [*lacks, "the script has not called autotune.report"] if is_silent else lacks

    def _untaken(self) -> str:
        names = ", ".join(sorted(self._to_take))
        return f"nothing took the settings {names}: the script makes no such object, or one without them"

    def _no_step(self) -> str:
        wanted = next(iter(self._progress.missing.items()), None)
        if wanted is None:
            return _NO_STEP
        return f"workload.{wanted[0]}: {ending.short(wanted[1], 60)!r} matched no line"
