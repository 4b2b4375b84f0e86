"""Runs a training command, and turns its output, files and hook messages into records."""

import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from autotune.core.record_names import COMPILING, FLOPS, QUEUED
from autotune.core.settings import effective_batch
from autotune.inside import messages, stop_request
from autotune.inside.inbox import Inbox
from autotune.inside.messages import Message, Stamped
from autotune.inside.site import autotune_wire as wire
from autotune.inside.site.autotune_saves import Counts
from autotune.workloads.command import calls, ending, files, spec, view
from autotune.workloads.command.counting import Checkpoint, Counter
from autotune.workloads.command.process import Process
from autotune.workloads.command.scores import Follower
from autotune.workloads.command.spec import Spec
from autotune.workloads.command.stream import Stream

# Polling interval and its growth: short at first, for short trials, then longer, because polls cost time.
_SOON_S, _LATE_S, _LATER = 0.05, 0.2, 1.05
# Slightly before the tuner gives up a trial without an evaluation: here the missing pattern can be named.
_OVERDUE_TIMES, _OVERDUE_STEPS = 2.7, 90
_MOST_UNSTEPPED = 10  # evaluations before the first step: some scripts begin with a few
_GOES_ON = "the command ended before a process that it had started: it must train in the foreground"
_ENDED_S = 10.0
_APART_S = 0.05  # between merged records
_FIRST_STEPS = 200  # not merged: a trial may be short


class Grace(NamedTuple):
    """The seconds within which a command, and the processes that it started, have to end."""

    saving_s: float = stop_request.CLOSING_S - _ENDED_S  # to write a checkpoint: shorter than the tuner waits
    whole_saving_s: float = stop_request.WHOLE_CLOSING_S - _ENDED_S
    ended_s: float = _ENDED_S  # for finished commands and processes left behind
    failed_s: float = 1.0


def fit(
    spec_: Spec,
    directory: Path,
    settings: Mapping[str, Any],
    workdir: Path,
    objects: Sequence[str] = (),  # settings below one replace arguments of every such object in the script
    *,
    is_asked: Callable[[], bool] = stop_request.is_pending,
    grace: Grace = Grace(),  # noqa: B008 - frozen
) -> Iterator[Stamped]:
    """Runs the command and yields its steps, its evaluations, and the records that it reports itself.

    A trial that cannot resume from its checkpoint restarts from scratch, once per workdir. Raises the
    script's exception, or CommandError if the output lacks steps or scores. Closing the generator ends all
    processes. Once asked to stop, it ends them, yields the remaining records, and raises StoppedError.
    """
    workdir = workdir.absolute()  # the command runs in another directory
    if calls.is_in_view(spec_):
        directory = view.make(directory, workdir / calls.VIEW)
    values = calls.values_of(spec_, settings, workdir)
    pattern = None if spec_.resume is None else calls.place(directory, spec_.resume.file, values)
    arguments = calls.put_in(settings, objects)
    variables = {wire.OVERRIDES: json.dumps(arguments)} if objects else {}
    names = {f"{name}.{key}" for name, own in arguments.items() for key in own if name != wire.IN_TRIAL}
    batch = int(settings.get(spec.EFFECTIVE_BATCH) or effective_batch(dict(settings)))
    samples = int(values.get(spec.TRIAL_SAMPLES) or 0)

    def attempt() -> Iterator[Stamped]:
        files.write(spec_.files, directory, values, workdir)
        checkpoint = Checkpoint(pattern, workdir)
        resumed = checkpoint.begin()
        counter = Counter(resumed or Counts(0), batch)
        call = calls.call(spec_, values, resumes=resumed is not None)
        file = spec_.file
        follower = file and Follower(file[0], calls.place(directory, file[1], values), spec_.scores)
        environment = calls.call_environment(spec_, call, settings, workdir, counter=counter, samples=samples)
        with Inbox() as inbox:
            stream, resumes = Stream(spec_, inbox, follower), checkpoint.exists  # else it was set aside
            environment |= variables | inbox.environment()
            process = Process(call.arguments, directory, environment, wire.SOCKET, stream.hear)
            run = _Run(spec_, process, inbox, stream, counter, checkpoint, set(names), resumes)
            try:
                yield from run.records(samples, is_asked, grace)
            finally:
                inbox.tell_to_stop()
                process.end(grace.ended_s)
                deque(run.accepted(stream.rest()), maxlen=0)  # counts them, for resuming from the checkpoint

    try:
        yield from attempt()
    except ending.ResumeError as error:
        is_kept = error.was_killed or wire.is_whole()  # a whole training is not restarted unasked
        checkpoint = Checkpoint(pattern, workdir)
        if is_kept or checkpoint.was_set_aside or not checkpoint.set_aside():
            raise
        print(f"autotune: {error}; it starts from the beginning", flush=True)
    else:
        return
    yield from attempt()


class Merger:
    """Merges consecutive steps into records that are 50 ms apart, because each record costs time. Pure.

    Never merges a step with an evaluation; a step still queued on the GPU waits for one that has ended.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._held: Stamped | None = None
        self._last_s = -math.inf  # of the last released record

    def add(self, record: Stamped, *, is_step: bool) -> list[Stamped]:
        """Adds a record and returns those that are complete, in order."""
        self._steps += is_step
        is_alone = not is_step or self._steps <= _FIRST_STEPS or COMPILING in record or FLOPS in record
        has_settled = self._held is not None and QUEUED not in self._held
        before = self.rest() if is_alone or (has_settled and QUEUED in record) else []
        if self._held is not None:
            settled = {name: value for name, value in self._held.items() if name != QUEUED}
            record = Stamped({**settled, **record}, record.at_s, self._held.steps + record.steps)
        self._held = record
        is_due = is_alone or record.at_s - self._last_s >= _APART_S
        return [*before, *(self.rest() if is_due else [])]

    def rest(self) -> list[Stamped]:
        """Returns the steps still held back."""
        held, self._held = self._held, None
        if held is None:
            return []
        self._last_s = held.at_s
        return [held]


@dataclass
class _Run:
    """Turns the messages of a running command into records."""

    spec: Spec
    process: Process
    inbox: Inbox
    stream: Stream
    counter: Counter
    checkpoint: Checkpoint
    to_take: set[str]  # searched arguments that no object has taken yet, such as `loader.num_workers`
    resumes: bool  # a checkpoint was there when it began
    error: messages.ScriptError | None = None
    evaluations: int = 0
    reports: bool = False  # the script calls autotune.report
    counts_itself: bool = False  # it also reports how many samples it has seen
    merger: Merger = field(default_factory=Merger)

    def records(self, samples: int, is_asked: Callable[[], bool], grace: Grace) -> Iterator[Stamped]:
        """Yields records until the command ends; raises its error. `samples`: length of the trial, or 0."""
        process, inbox = self.process, self.inbox
        until_s, look_s = math.inf, _SOON_S
        while not process.is_over and time.monotonic() < until_s:
            if is_asked():
                inbox.tell_to_stop()
                process.end(grace.whole_saving_s if wire.is_whole() else grace.saving_s)
                yield from self.accepted(self.stream.rest())
                raise stop_request.StoppedError
            waited_s = process.wait(look_s)  # messages that arrive meanwhile have their own timestamps
            was_suspended = waited_s > 2 * look_s + _SOON_S  # as between two turns of a race
            look_s = _SOON_S if was_suspended else min(_LATE_S, _LATER * look_s)
            yield from self.accepted(self.stream.until(min(process.heard_s, inbox.heard_s())))
            self._require_sense(samples)
            if math.isinf(until_s) and process.code is not None:
                until_s = time.monotonic() + (grace.failed_s if process.code else grace.ended_s)
        lacks = [_GOES_ON] if process.family() else []
        process.end(0.0)
        yield from self.accepted(self.stream.rest())
        if process.code:
            error = ending.exit_error(process.code, process.pid, self.error, tuple(process.tail))
            has_begun = self.counter.steps or not self.resumes
            raise error if has_begun else ending.ResumeError(error, process.code)
        if missing := self._lacks():
            raise self._lacking(*lacks, *missing)

    def accepted(self, arrived: Iterator[Message]) -> Iterator[Stamped]:
        """Yields the records of messages, and notes the counts of a checkpoint that was written since."""
        for message in arrived:
            if (record := self._record(message.at_s, message.content)) is not None:
                is_step = isinstance(message.content, messages.Step)
                yield from self.merger.add(Stamped(record, message.at_s), is_step=is_step)
        yield from self.merger.rest()
        if self.spec.counts_by_output or self.counts_itself or wire.is_whole():
            self.checkpoint.look(self.counter, self.stream.known_s)

    def _record(self, at_s: float, content: messages.Content) -> dict[str, Any] | None:
        """Takes in a message; returns its record, None if it has none."""
        counter = self.counter
        match content:
            case messages.Step(samples, figures, tokens) if not self.counts_itself:
                counter.step(at_s, samples, tokens)
                return {**counter.counts, **figures}
            case messages.SamplesSeen(samples) if counter.take_printed(at_s, samples):
                return {"samples": counter.samples}
            case messages.Scores(scores):
                self.evaluations += 1
                return {**counter.counts, **scores}
            case messages.Reported(record):
                self.reports = True
                if "samples" in record and not self.counts_itself:
                    self.counts_itself = True
                    self.checkpoint.trust(counter)
                return counter.complete(at_s, record)
            case messages.ScriptError():
                self.error = self.error or content  # the first failing process causes the others to fail
            case messages.GpuLost(reason):
                raise messages.GpuLostError(reason)
            case messages.Taken(names):
                self.to_take -= set(names)
        return None

    def _require_sense(self, samples: int) -> None:
        """Raises CommandError if a running command can no longer yield a usable measurement."""
        counter = self.counter
        if counter.steps and self.to_take:  # their objects are made before the first step
            names = ", ".join(sorted(self.to_take))
            reason = "the script makes no such object, or one without them"
            raise self._lacking(f"nothing took the settings {names}, because {reason}")
        is_far = samples and counter.samples >= _OVERDUE_TIMES * samples
        unscored = is_far and counter.steps >= _OVERDUE_STEPS and not self.evaluations and not self.reports
        unstepped = self.evaluations > _MOST_UNSTEPPED and not counter.steps and not self.reports
        if (unscored or unstepped) and (lacks := self._lacks()):
            far = f"no score came within {counter.samples:,} samples; a trial has {samples:,}"
            raise self._lacking(*([far] if unscored else []), *lacks)

    def _lacking(self, *lacks: str) -> Exception:
        return ending.missing_output_error(lacks, tuple(self.process.tail))

    def _lacks(self) -> list[str]:
        """Returns the missing steps or scores; none after resuming, or for a whole training with steps."""
        if self.counter.begun or (self.counter.steps and wire.is_whole()):
            return []
        lacks = list(self.stream.missing(has_steps=bool(self.counter.steps or self.reports)))
        if self.spec.quality == spec.REPORTED and not self.reports:
            lacks.append("the script has not called autotune.report")
        return lacks
