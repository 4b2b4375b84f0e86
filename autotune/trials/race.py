"""A race: the settings of several trials take turns on one device until the fastest is known.

Every member is a child process of its own. If all fit into memory at once, they are started together and
suspended between their turns: a turn then costs no start, and a round takes seconds, during which the machine
changes little. Otherwise every turn starts its member's process again. As processes with the same settings
differ in speed, all are launched anew after some rounds. `racing` decides which members stay.
"""

import itertools
import json
import math
import os
import shutil
import statistics
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import NamedTuple, TextIO

from autotune.core.measurement import Measurement, Slice
from autotune.core.record_names import QUEUED
from autotune.core.trial import Failure, Outcome, Status
from autotune.judging.decisions import racing
from autotune.judging.measurement import meter
from autotune.storage import identity
from autotune.storage.layout import TrialDir
from autotune.storage.records import is_break, lines_of, open_lines
from autotune.system import telemetry
from autotune.system.telemetry import Telemetry
from autotune.trials import failures, output
from autotune.trials.attempt import interrupted_by_the_disk
from autotune.trials.child import Child
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import RaceOrder, Racer, should_stop
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport

_TRIES = 4  # attempts at a turn, each twice as long as the one before
_LONGEST_TURN_S, _STEPS = 60.0, 3  # of a turn, which has room for a few steps however slow they are


class Least(NamedTuple):
    """The minimum length of a turn."""

    seconds: float  # 0: by `racing.turn_s`
    steps: int  # counted, once the step time is known


Waiting = Generator[None, None, None]  # yields while it waits, so that its caller can report


class _EndedError(Exception):
    """The race cannot continue; `outcome` is the outcome of the whole race."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


class _Member:
    """A member of a race: its child process, suspended between turns, and the steps of its turns."""

    def __init__(self, racer: Racer, server: ForkServer, least_steps: int) -> None:
        self._racer, self._order = racer, racer.order
        self._server, self._least_steps = server, least_steps
        self._ready = meter.prefetched_steps(racer.order.settings)
        self._child: Child | None = None
        self._stamps: list[meter.Stamp] = []
        self._steps_s: deque[float] = deque(maxlen=100)

    def warm_up(self) -> Generator[None, None, Child]:
        """Starts a child and runs its first steps, unless one is alive already; returns the child."""
        if self._child is not None and self._child.verdict is None:
            return self._child
        self.end()
        child = self._child = Child(self._order, self._server)
        begun_s, fewest = time.monotonic(), meter.steps_to_start(self._order.settings) + 1
        yield from self._run(child, steps=fewest)
        if self._steps_taken() < fewest:
            fault = "the workload ended by itself before it was warmed up"
            raise self._ended(failures.failure(Failure.ERROR, fault))
        self._counted(begun_s, ready=0)
        return child

    def turn(self, least_s: float) -> Generator[None, None, list[meter.MeasuredStep]]:
        """Runs one turn and returns its counted steps, at least one; fails the race if there are none."""
        for tried in range(_TRIES):
            child = yield from self.warm_up()
            if tried:  # an evaluation, which may outlast any turn, ends with the next step
                yield from self._run(child, steps=1)
                self._stamps.clear()
            begun_s = time.monotonic()
            longest_s = max(_LONGEST_TURN_S, _STEPS * self._step_s)
            yield from self._run(child, seconds=min(longest_s, self._turn_s(least_s) * 2**tried))
            steps = self._counted(begun_s, self._ready)
            if any(step.seconds > 0 for step in steps):  # lines of a buffered output come at the same time
                return steps
        fault = f"no whole step in a turn, {_TRIES} times in a row"
        raise self._ended(failures.failure(Failure.ERROR, fault))

    def _turn_s(self, least_s: float) -> float:
        """Returns the seconds of a turn, with an extra step, because a turn starts and ends within a step."""
        steps = self._least_steps + min(self._ready, self._least_steps) + 1
        return max(least_s, steps * self._step_s)

    @property
    def _step_s(self) -> float:
        return statistics.median(self._steps_s or [0.0])

    def _run(self, child: Child, *, steps: float = math.inf, seconds: float = math.inf) -> Waiting:
        """Runs the child for `steps` or `seconds`, or until it ends by itself, and suspends it."""
        deadline_s = time.monotonic() + seconds
        child.resume()
        while child.verdict is None and self._steps_taken() < steps:
            if (left_s := deadline_s - time.monotonic()) <= 0:
                break
            self._listen(child, min(left_s, 0.2))
            yield
        child.pause()
        self._listen(child, 0.0)  # what it had yielded by then

    def _steps_taken(self) -> int:
        return sum(stamp.is_step for stamp in self._stamps)

    def _counted(self, begun_s: float, ready: int) -> list[meter.MeasuredStep]:
        steps = meter.counted_steps(self._stamps, begun_s, time.monotonic(), ready)
        self._steps_s.extend(step.seconds for step in steps)
        self._stamps.clear()
        return steps

    def _listen(self, child: Child, timeout_s: float) -> None:
        output.bound(self._order.place.log)
        quality = self._order.metric.name
        for record in child.poll(timeout_s):
            is_step = quality not in record and not is_break(record)
            if not is_step or QUEUED not in record:
                self._stamps.append(meter.Stamp(record["at_s"], record["samples"], is_step=is_step))
        if child.verdict is not None and child.verdict.status is not Status.COMPLETED:
            raise self._ended(child.verdict)

    def slice(self, round_number: int, launch: int, steps: Sequence[meter.MeasuredStep]) -> Slice:
        """Returns the member's slice of a round, in which it took `steps`."""
        samples, seconds = sum(step.samples for step in steps), sum(step.seconds for step in steps)
        outside_s, unsure = samples * self._racer.outside_s, self._racer.unsure
        return Slice(
            self._order.number, round_number, samples, seconds, len(steps), outside_s, unsure, launch
        )

    def _ended(self, outcome: Outcome) -> _EndedError:
        return _EndedError(replace(outcome, reason=f"trial {self._order.number}: {outcome.reason}"))

    def end(self) -> None:
        """Kills the child and deletes its work directory, from which nothing resumes."""
        if self._child is not None:
            self._child.kill()
        self._child = None
        self._stamps.clear()
        shutil.rmtree(self._order.place.work, ignore_errors=True)


class Race:
    """A running race. Call `step` until it reports an outcome, or `stop` to break off and resume later."""

    def __init__(self, order: RaceOrder, server: ForkServer, least: Least | None = None) -> None:
        self._order = order
        self._place = order.place
        self._started = time.monotonic()
        self._device = telemetry.device()
        self._outcome: Outcome | None = None
        self._rounds: TextIO | None = None
        self._slices = read_slices(self._place)
        self._earlier_s = sum(turn.seconds for turn in self._slices)
        # Longer if every turn starts its process anew.
        self._least_s, steps = least or (Least(0.0, 5) if order.together else Least(10.0, 10))
        self._members = {racer.order.number: _Member(racer, server, steps) for racer in order.members}
        self._lengths = {racer.order.number: racer.samples for racer in order.members}
        self._course = self._run()
        self._telemetry = Telemetry(os.getpid())  # the fork server's children are its grandchildren
        self._telemetry.__enter__()

    def step(self, timeout_s: float) -> TrialReport:
        """Runs for about `timeout_s` and reports the figures so far, and at the end the outcome."""
        deadline_s = time.monotonic() + timeout_s
        with interrupted_by_the_disk(self._end):
            try:
                while self._outcome is None and time.monotonic() < deadline_s:
                    next(self._course)
            except StopIteration:
                self._end(Outcome(Status.COMPLETED))
            except _EndedError as ended:
                self._end(ended.outcome)
        report = TrialReport(
            number=self._order.number,
            phase=Phase.RACING,
            elapsed_s=self._earlier_s + time.monotonic() - self._started,
            measurement=Measurement(
                samples=sum(turn.samples for turn in self._slices), node=self._order.node
            ),
            telemetry=self._telemetry.latest(),
        )
        if self._outcome is None and should_stop(self._order):
            self._end(Outcome(Status.INTERRUPTED, reason="was asked to stop"))
        if self._outcome is not None:
            with interrupted_by_the_disk(self._end):
                if self._outcome.status is not Status.INTERRUPTED:  # an interrupted race has no verdict yet
                    identity.write_verdict(self._place, self._outcome, self.measurement())
            report = replace(report, outcome=self._outcome, measurement=self.measurement())
            self.stop()
        return report

    def _end(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def _run(self) -> Waiting:
        """Runs round after round until the race is decided or its time is over."""
        self._place.make()
        if self._order.identity is not None:
            identity.write_identity(self._place, self._order.identity)
        self._rounds = open_lines(self._place.slices_file)
        while not self._is_late() and self._members_left():
            yield from self._launch()

    def _is_late(self) -> bool:
        taken_s = self._earlier_s + time.monotonic() - self._started
        rounds = max((turn.round for turn in self._slices), default=0)
        return racing.is_late(taken_s, self._order.most_s, rounds, self._order.trials_s)

    def _members_left(self) -> tuple[int, ...]:
        """Returns the members of the next round; empty if the race is decided."""
        return racing.Trainings(self._slices, self._lengths).next_round()

    def _launch(self) -> Waiting:
        """Starts all members' processes, gives them some rounds, and ends them."""
        launch = max((turn.launch for turn in self._slices), default=0) + 1
        begun_s, members = time.monotonic(), self._members_left()
        if self._order.together:
            for number in members:
                yield from self._members[number].warm_up()
        started_s = time.monotonic()
        start_s = started_s - begun_s
        least_s = self._least_s or racing.turn_s(start_s, len(members), self._order.most_s)
        for count in itertools.count(1):
            yield from self._round(launch, least_s)
            rounds_s = time.monotonic() - started_s
            is_enough = not self._order.together or racing.is_enough_of_a_launch(count, rounds_s, start_s)
            if is_enough or self._is_late() or not self._members_left():
                break
        for member in self._members.values():
            member.end()

    def _round(self, launch: int, least_s: float) -> Waiting:
        """Gives every member a turn of at least `least_s`; an incomplete round does not count."""
        done = max((turn.round for turn in self._slices), default=0)
        slices = []
        for number in self._members_left():
            member = self._members[number]
            steps = yield from member.turn(least_s)
            slices.append(member.slice(done + 1, launch, steps))
            if not self._order.together:
                member.end()
        if self._rounds is not None:
            self._rounds.write(json.dumps([asdict(turn) for turn in slices]) + "\n")
            self._rounds.flush()
        self._slices += slices

    def measurement(self) -> Measurement:
        return Measurement(
            slices=tuple(self._slices),
            device=self._device,
            node=self._order.node,
            revision=self._order.members[0].order.revision,
            telemetry=self._telemetry.summary(),
        )

    def stop(self) -> None:
        """Ends the members; completed rounds are kept to resume from."""
        self._telemetry.__exit__(None, None, None)
        for member in self._members.values():
            member.end()
        if self._rounds is not None:
            with suppress(OSError):  # every write is flushed, so only a failed one is left
                self._rounds.close()


def read_slices(place: TrialDir) -> list[Slice]:
    """Reads the slices of all complete rounds in `place`, without a line that was cut short by a kill."""
    slices: list[Slice] = []
    for line in lines_of(place.slices_file):
        if isinstance(line, list):
            with suppress(TypeError):
                slices += [Slice(**values) for values in line]
    return slices
