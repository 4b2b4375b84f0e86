"""Runs a training command, and turns its output, files and hook messages into records."""

import json
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from autotune.core.record_names import COMPILING, FLOPS, QUEUED, RATE, TRAIN_LOSS
from autotune.core.settings import effective_batch
from autotune.inside import stops
from autotune.inside.inbox import Inbox
from autotune.inside.messages import GpuLostError, Message, Stamped
from autotune.inside.site import autotune_wire as wire
from autotune.workloads.command import calls, ending, files, spec, view
from autotune.workloads.command.counting import Checkpoint, Counter, Counts
from autotune.workloads.command.follow import LOGS, Follower
from autotune.workloads.command.merging import Merger
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

# Polling interval and its growth: short at first for short trials, later longer, as it costs training time.
_SOON_S, _LATE_S, _LATER = 0.05, 0.2, 1.05
_STEPS_REMEMBERED = 50
_GRACE_S = 10.0  # for finished commands and processes left behind to end by themselves
_FAILED_GRACE_S = 1.0
# Slightly before the tuner gives up a trial without evaluation: here the missing pattern is known.
_OVERDUE_TIMES, _OVERDUE_STEPS = 2.7, 90
_MOST_UNSTEPPED = 10  # evaluations before the first step: some scripts begin with a few
_STEPS, _SAMPLES = "steps", "samples"
# The hook's names of figures, and the tuner's.
_NAMES = {
    "loss": TRAIN_LOSS,
    "rate": RATE,
    "flops": FLOPS,
    "queued": QUEUED,
    "compiling": COMPILING,
}
_NOT_HEARD = "only scores that Python logs with torch.utils.tensorboard, tensorboardX or wandb are seen"
_GOES_ON = "the command ended before a process that it had started: it must train in the foreground"
_NO_STEP = (
    "no optimizer step was seen: PyTorch's are, from version 2.0 on; else give workload.samples or "
    "workload.steps a pattern"
)


def fit(
    spec_: Spec, directory: Path, settings: Mapping[str, Any], workdir: Path, objects: Sequence[str] = ()
) -> Iterator[Stamped]:
    """Runs the command and yields its steps, evaluations, and the records it reports itself.

    Settings below one of the `objects` replace arguments of every such object in the script. A trial that
    cannot resume from its checkpoint restarts from scratch, once per workdir. Raises the script's exception,
    or CommandError if the output lacks steps or scores. Closing it ends all processes. If asked to stop, it
    ends them, yields the remaining records, and raises StoppedError.
    """
    workdir = workdir.absolute()  # the command runs in another directory
    if calls.is_in_view(spec_):
        directory = view.make(directory, workdir / calls.VIEW)
    try:
        yield from _attempt(spec_, directory, settings, workdir, objects)
    except ending.ResumeError as error:
        is_kept = error.was_killed or wire.is_whole()  # a whole training is not restarted unasked
        checkpoint = _checkpoint(spec_, directory, settings, workdir)
        if is_kept or checkpoint.was_set_aside or not checkpoint.set_aside():
            raise
        print(f"autotune: {error}; it starts from the beginning", flush=True)
    else:
        return
    yield from _attempt(spec_, directory, settings, workdir, objects)


def _checkpoint(spec_: Spec, directory: Path, settings: Mapping[str, Any], workdir: Path) -> Checkpoint:
    values = calls.values_of(spec_, settings, workdir)
    file = None if spec_.resume is None else calls.place(directory, spec_.resume.file, values)
    return Checkpoint(file, workdir)


def _begun(checkpoint: Checkpoint) -> Counts | None:
    """Returns the counts to resume from; None to start from scratch.

    A checkpoint with unknown counts would falsify a trial's measurement; a whole training resumes anyway.
    """
    if not checkpoint.exists:
        checkpoint.forget()
        return None
    counts = checkpoint.counts()
    if counts is not None:
        print(f"autotune: continues from the checkpoint, after {counts.samples} samples", flush=True)
    elif wire.is_whole():
        counts = checkpoint.least()
        print(f"autotune: continues from the checkpoint, after at least {counts.samples} samples", flush=True)
    else:
        checkpoint.set_aside()
        print(
            "autotune: nothing says at how many samples the checkpoint was saved; "
            "the training starts from the beginning",
            flush=True,
        )
    return counts


def _attempt(
    spec_: Spec, directory: Path, settings: Mapping[str, Any], workdir: Path, objects: Sequence[str]
) -> Iterator[Stamped]:
    """Runs the command once, from its checkpoint if there is one, and yields its records."""
    values = calls.values_of(spec_, settings, workdir)
    files.write(spec_.files, directory, values, workdir)
    checkpoint = _checkpoint(spec_, directory, settings, workdir)
    resumed = _begun(checkpoint)
    begun = resumed or Counts(0)
    batch = int(settings.get(spec.EFFECTIVE_BATCH) or effective_batch(dict(settings)))
    call = calls.call(spec_, directory, values, resumes=resumed is not None)
    follower = spec_.file and Follower(
        spec_.file[0], calls.place(directory, spec_.file[1], values), spec_.scores
    )
    arguments = calls.put_in(settings, objects)
    overrides = {wire.OVERRIDES: json.dumps(arguments)} if objects else {}
    with Inbox() as inbox:
        run = _Run(spec_, inbox, Counter(begun, batch), checkpoint, follower, to_take=_paths(arguments))
        path = call.environment.get("PYTHONPATH")
        of_trial = calls.of_trial(spec_, settings, workdir, path=path, begun=begun, batch=batch)
        environment = {**call.environment, **of_trial, **overrides, **inbox.environment()}
        process = Process(call.arguments, call.directory, environment, wire.SOCKET, run.hear)
        try:
            yield from run.records(process, int(values.get(spec.TRIAL_SAMPLES) or 0))
        finally:
            inbox.tell_to_stop()
            process.end(_GRACE_S)
            run.conclude()


def _paths(arguments: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """Returns the paths of all arguments that an object must take, such as `loader.num_workers`."""
    own = {name: values for name, values in arguments.items() if name != wire.IN_TRIAL}
    return frozenset(f"{name}.{key}" for name, values in own.items() for key in values)


class _Run:
    """Collects events of a command from output, files and hook, and makes records of them."""

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
        self._to_take = to_take  # arguments that no object has taken yet
        self._spec, self._inbox = spec_, inbox
        self._counter, self._checkpoint, self._follower = counter, checkpoint, follower
        progress = {_SAMPLES: spec_.samples, _STEPS: spec_.steps}
        self._progress = Patterns({name: pattern for name, pattern in progress.items() if pattern})
        self._scores = Patterns(spec_.patterns)
        self._lines: SimpleQueue[tuple[Line, Happened]] = SimpleQueue()
        self._timeline, self._merger = Timeline(), Merger()
        self._steps_s: deque[float] = deque(maxlen=_STEPS_REMEMBERED)
        self._told: ending.Told | None = None
        self._resumes = checkpoint.exists  # otherwise it was set aside
        self._evaluations = 0
        self._reports = self._counts_itself = False

    def hear(self, line_: Line) -> bool:
        """Takes a line of the output, on the reader thread; returns True if it matched a pattern."""
        progress = self._progress.find(line_.text)
        if _STEPS in progress:
            self._lines.put((line_, Step(None)))
        if math.isfinite(samples := progress.get(_SAMPLES, math.nan)):
            self._lines.put((line_, SamplesSeen(int(samples))))
        if scores := self._scores.find(line_.text):
            self._lines.put((line_, Scores(scores)))
        return bool(progress or scores)

    def records(self, process: Process, trial_samples: int) -> Iterator[Stamped]:
        """Yields records until the command has ended; raises its error, if any."""
        until_s, look_s = math.inf, _SOON_S
        while not process.is_over and time.monotonic() < until_s:
            if stops.is_asked():
                self._inbox.tell_to_stop()
                closing_s = stops.WHOLE_CLOSING_S if wire.is_whole() else stops.CLOSING_S
                process.end(closing_s - _GRACE_S)
                yield from self._rest()
                raise stops.StoppedError
            waited_s = process.wait(look_s)  # events that arrive meanwhile have their own timestamps
            was_suspended = waited_s > 2 * look_s + _SOON_S  # as between two turns of a race
            look_s = _SOON_S if was_suspended else min(_LATE_S, _LATER * look_s)
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
        if missing := self._lacks():
            raise ending.of_nothing([*lacks, *missing], tuple(process.tail))

    def _rest(self) -> Iterator[Stamped]:
        """Yields the remaining records of an ended command."""
        self._inbox.finish()
        self._listen()
        yield from self._ready(math.inf)

    def _of_exit(self, process: Process, code: int) -> Exception:
        """Returns the error of a failed command; a ResumeError if it failed to resume."""
        error = ending.of_exit(code, process.pid, self._told, tuple(process.tail))
        has_begun = self._counter.steps or not self._resumes
        return error if has_begun else ending.ResumeError(error, code)

    def conclude(self) -> None:
        """Counts the remaining events, for resuming from the checkpoint."""
        deque(self._rest(), maxlen=0)

    def _listen(self) -> None:
        """Takes all pending messages, output lines and file rows."""
        while (message := self._inbox.get(0.0)) is not None:
            self._take(message)
        with suppress(Empty):
            while True:
                line_, happened = self._lines.get_nowait()
                is_late = isinstance(happened, Scores) and not line_.is_stamped
                ended_s = evaluated_s(line_.at_s, self._steps_s) if is_late else None
                self._timeline.add(line_.at_s if ended_s is None else ended_s, happened)
        for row in self._follower.look() if self._follower else ():
            self._timeline.add(row.at_s, Scores(row.scores))

    def _take(self, message: Message) -> None:
        self._to_take -= set(message.taken)
        if message.gpu_lost:
            raise GpuLostError(message.gpu_lost)
        if message.error is not None:  # the first failing process causes the others to fail
            self._told = self._told or ending.Told(message.error.type, message.error.message)
        elif message.record is not None:
            self._timeline.add(message.at_s, Reported(message.record))
        elif message.logged is not None and self._follower:
            if scores := self._follower.told(Path(message.logged.place), message.logged.scores):
                self._timeline.add(message.at_s, Scores(scores))
        elif message.step is not None and not self._spec.counts_by_output:
            self._steps_s.append(message.at_s)
            self._timeline.add(message.at_s, Step(**vars(message.step)))

    def _ready(self, moment_s: float) -> Iterator[Stamped]:
        """Yields the records of events up to a moment."""
        for at_s, happened in self._timeline.until(moment_s):
            if (record := self._record(at_s, happened)) is not None:
                is_step = isinstance(happened, Step)
                yield from self._merger.add(Stamped(record, at_s), is_step=is_step)
        yield from self._merger.rest()
        if self._spec.counts_by_output or self._counts_itself or wire.is_whole():
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
                return {**counter.counts, **happened.scores}
            case Reported():
                self._reports = True
                if "samples" in happened.record and not self._counts_itself:
                    self._counts_itself = True
                    self._checkpoint.trust(counter)
                return counter.reported(at_s, happened.record)

    def _require_sense(self, process: Process, trial_samples: int) -> None:
        """Raises CommandError if a running command cannot yield a usable measurement any more."""
        counter = self._counter
        if counter.steps and self._to_take:  # their objects are made before the first step
            raise ending.of_nothing([self._untaken()], tuple(process.tail))
        is_far = trial_samples and counter.samples >= _OVERDUE_TIMES * trial_samples
        unscored = is_far and counter.steps >= _OVERDUE_STEPS and not self._evaluations and not self._reports
        unstepped = self._evaluations > _MOST_UNSTEPPED and not counter.steps and not self._reports
        if (unscored or unstepped) and (lacks := self._lacks()):
            far = f"no score came in {counter.samples} samples, of which a trial has {trial_samples}"
            raise ending.of_nothing([far, *lacks] if unscored else lacks, tuple(process.tail))

    def _lacks(self) -> list[str]:
        """Returns missing steps or scores; none after resuming, or for a whole training with steps."""
        if self._counter.begun or (self._counter.steps and wire.is_whole()):
            return []
        lacks = [] if self._counter.steps or self._reports else [self._no_step()]
        if self._follower:
            kind, place = self._spec.file or ("", "")
            unseen = [
                f"{name}: no {key!r} has come in {place}" for name, key in self._follower.missing.items()
            ]
            lacks += [f"workload.{kind}: {line}" for line in unseen]
            lacks += [_NOT_HEARD] if unseen and kind in LOGS else []
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
