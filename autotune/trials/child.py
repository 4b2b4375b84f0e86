"""One trial's workload in a process of its own: started, listened to, stopped, and its end explained."""

import fcntl
import json
import os
import signal
import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import psutil

from autotune.core import secrecy
from autotune.core.trial import Failure, Outcome, Status
from autotune.trials import failures, family, runner
from autotune.trials.fork_server import ForkServer
from autotune.trials.gpu_watch import GpuWatch
from autotune.trials.memory_watch import LOOK_S, MemoryWatch
from autotune.trials.order import Order
from autotune.trials.output import Output

_UNTIMED_S = 1800.0  # for what has not been seen yet: the first step may compile, an evaluation takes minutes
_SHORTEST_STALL_S = 300.0
_STALL_STEPS = 10
_STALL_GAPS = 3
_STEPS_REMEMBERED = 100
_STACK_S, _STACK_WAIT_S = 0.1, 1.0
_LAST_WORDS_BYTES = 65536
_PIPE_BYTES = 2**20  # the most that Linux lets a pipe hold
# Between two readings of what it says: being woken by every record would take time from the training. A share
# of its age, because a trial may be over in a second.
_LONGEST_PAUSE_S, _PAUSE_SHARE = 0.4, 0.02


@dataclass(frozen=True)
class Event:
    """A record, and when the workload yielded it by its own process's monotonic clock."""

    at_s: float
    record: dict[str, Any]


class Child:
    """A workload that runs, or has run. `poll` it until it has a `verdict`, or `stop` it.

    `kill` it in the end, whatever the verdict: that ends what the workload has left behind. A child that is
    forgotten is killed, too.
    """

    def __init__(self, order: Order, server: ForkServer) -> None:
        order.place.root.mkdir(exist_ok=True)  # does not recreate a deleted session
        self.verdict: Outcome | None = None
        self._order = order
        self._hide = secrecy.hider(os.environ)  # nothing that it says gets further with a key in it
        self._log_start = _size(order.place.log)
        self._memory, self._cap_share = MemoryWatch(order.memory_limit_bytes), 0.0
        self._gpus = GpuWatch(order.gpus)
        self._process, pipe, output = server.start(order, self._memory.group)
        self._memory.begin(self.pid)
        self._end = Finalize(self, family.end, (self._process, self._memory.group), exitpriority=0)
        self._inbox, self._output = _Inbox(pipe), Output(output, order.place.log, self._hide)
        self._events: list[Event] = []
        self._begun_s = self._heard_s = time.monotonic()
        self._still_s = 0.0
        self._samples, self._is_evaluated = -1, False
        self._yielded_s: float | None = None
        self._gaps_s: deque[float] = deque(maxlen=_STEPS_REMEMBERED)
        self._longest_gap_s = 0.0
        self._has_evaluated = False
        self._stopping = self._is_paused = False

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def poll(self, timeout_s: float) -> list[Event]:
        """The records that have come, waiting for the first one at most `timeout_s`.

        After `stop`, those that came in the meantime.
        """
        deadline, left_s = time.monotonic() + timeout_s, timeout_s
        while self.verdict is None and not self._events:
            self._listen(min(left_s, LOOK_S))
            if (left_s := deadline - time.monotonic()) <= 0:
                break
        events, self._events = self._events, []
        return events

    def _listen(self, timeout_s: float) -> None:
        pause_s = min(_LONGEST_PAUSE_S, _PAUSE_SHARE * (time.monotonic() - self._begun_s), timeout_s)
        if self._stopping or not wait([self._process.sentinel], pause_s):
            heard = [one for one in (self._inbox, self._output) if not one.ended]
            wait([*(one.pipe for one in heard), self._process.sentinel], timeout_s - pause_s)
        self._count_still(max(timeout_s, LOOK_S))
        has_died = not self._process.is_alive()  # asked first: what it had to say is then all in the pipe
        self._take(self._inbox.read())
        self._output.take()  # after its messages: with the verdict comes all that was printed before it
        if has_died and self.verdict is None:
            self.verdict = self._explain_death()
        elif not has_died:
            self._end_excess()
            if not self._stopping:  # the time to close has a limit of its own
                self._end_standstill()

    def _count_still(self, most_s: float) -> None:
        """Counts the time since it was last called as time in which the workload made no progress.

        Time beyond `most_s` cannot be attributed: this process may have been suspended, and all others with
        it. What was done with its records in between counts, or a flood of them would hide that it stands
        still.
        """
        now_s = time.monotonic()
        if not self._is_paused:
            self._still_s += min(now_s - self._heard_s, most_s)
        self._heard_s = now_s

    def _take(self, messages: Sequence[dict[str, Any]]) -> None:
        for message in messages:
            if "outcome" in message:
                told = Outcome.from_dict(message["outcome"])
                self.verdict = failures.of_verdict(
                    replace(told, reason=self._hide(told.reason)),
                    asked_to_stop=self._stopping,
                    kernel_killed=self._memory.kernel_killed(),
                    counted_alone=self._memory.is_alone,
                    memory_share=self._memory.memory_share,
                )
                continue
            event = Event(message["at_s"], secrecy.each_text(message["record"], self._hide))
            if self._samples < 0:  # the first one
                self._gpus.note(self.pid)
            if self._yielded_s is not None:
                self._gaps_s.append(event.at_s - self._yielded_s)
                self._longest_gap_s = max(self._longest_gap_s, self._gaps_s[-1])
            self._yielded_s = event.at_s
            self._follow(event.record)
            if self._order.memory_limit_bytes and self._order.caps_process:
                self._cap_share = event.record["memory_peak_bytes"] / self._order.memory_limit_bytes
            self._events.append(event)

    def _follow(self, record: Mapping[str, Any]) -> None:
        """Notes when the trial got on: to more samples, or to the evaluation that is due where it stands."""
        is_evaluation = self._order.quality in record
        if record["samples"] > self._samples or (is_evaluation and not self._is_evaluated):
            self._still_s = 0.0
            self._is_evaluated = is_evaluation
        self._samples = record["samples"]
        self._has_evaluated |= is_evaluation

    def _end_excess(self) -> None:
        """Ends a trial that exceeds its memory limit, or lost a process for lack of memory and continues."""
        if self.verdict is not None or not self._memory.look():
            return
        if held_bytes := self._memory.excess_bytes(self.pid):
            self.verdict = failures.beyond_its_limit(held_bytes, self._order.memory_limit_bytes or 0)
        elif self._memory.has_missed_a_kill():
            self.verdict = failures.killed_inside("it went on without it")
        if self.verdict is not None:
            self.kill()

    def _explain_death(self) -> Outcome:
        code = self._process.exitcode or 0
        if self._stopping and code == -signal.SIGTERM:
            return Outcome(Status.STOPPED, reason="was asked to stop before it had begun")
        self._output.finish()
        return failures.of_exit(
            code,
            self._last_words(),
            capped=self._order.caps_process,
            kernel_killed=self._memory.kernel_killed(),
            counted_alone=self._memory.is_alone,
            memory_share=self._memory.memory_share,
            cap_share=self._cap_share,
        )

    def _last_words(self) -> str:
        """The end of what it wrote into its log, earlier attempts left out."""
        try:
            with self._order.place.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                start = self._log_start if self._log_start <= size else 0  # or else its middle was left out
                log.seek(max(start, size - _LAST_WORDS_BYTES))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def _end_standstill(self) -> None:
        """Ends a trial without progress for too long; where the workload hangs is then in its log."""
        if self.verdict is not None or self._still_s <= self._stall_limit_s() or self._is_held_by_disk():
            return
        for member in family.members(self.pid):  # one after the other: all write into one log
            with suppress(psutil.Error):
                member.send_signal(runner.STACK_SIGNAL)
                member.send_signal(signal.SIGCONT)  # a process that was stopped writes nothing
                time.sleep(_STACK_S)
        self._process.join(_STACK_WAIT_S)
        still_s = self._still_s
        if self._order.whole:
            # It may have advanced after all, as where a program that it waits for has died of the signal.
            # It is resumed from its checkpoint, which is then of records that are still to be read.
            family.suspend(self.pid)
            self._take(self._inbox.read())
        self.verdict = failures.failed(
            Failure.TIMEOUT,
            f"no record with more samples for {still_s:.0f} s; its stack is in {self._order.place.log}",
        )
        self.kill()

    def _stall_limit_s(self) -> float:
        if self._order.stall_timeout_s is not None:
            return self._order.stall_timeout_s
        if not self._has_evaluated:
            return _UNTIMED_S
        median_s = statistics.median(self._gaps_s or [0.0])
        return max(_SHORTEST_STALL_S, _STALL_STEPS * median_s, _STALL_GAPS * self._longest_gap_s)

    def _is_held_by_disk(self) -> bool:
        """Whether it may still come back: a checkpoint on a slow disk can take longer than any step before.

        Not for ever, because a driver that hangs looks the same.
        """
        is_timed_here = self._order.stall_timeout_s is None
        return is_timed_here and self._still_s <= _UNTIMED_S and family.waits_for_disk(self.pid)

    def pause(self) -> None:
        """Suspends the process and all that it has started; what they hold they keep.

        The guard of its group runs on: it ends the others when this process dies.
        """
        self._is_paused = True
        family.suspend(self.pid)

    def resume(self) -> None:
        """Resumes what was paused; the time in between counts neither as a step nor as silence."""
        family.go_on(self.pid)
        self._is_paused, self._yielded_s, self._heard_s = False, None, time.monotonic()

    def stop(self, grace_s: float) -> Outcome:
        """The verdict once the workload has closed after its next record; after `grace_s` it is killed."""
        deadline = time.monotonic() + grace_s
        if self.verdict is None and self._process.is_alive():
            self._stopping = True
            self._process.terminate()  # also where it has just ended by itself
            if self._is_paused:
                self.resume()
        while self.verdict is None and (left_s := deadline - time.monotonic()) > 0:
            self._listen(left_s)
        self.verdict = self.verdict or Outcome(
            Status.STOPPED, reason=f"killed: it did not close within {grace_s:g} s"
        )
        self.kill()
        return self.verdict

    def kill(self) -> None:
        """Ends the process and all that it started, at once."""
        self.verdict = self.verdict or Outcome(Status.STOPPED, reason="killed")
        self._gpus.note(self.pid)
        self._end()
        self._gpus.wait()
        self._inbox.pipe.close()
        self._output.close()


class _Inbox:
    """A child's messages, read without ever waiting for the rest of one."""

    def __init__(self, pipe: Connection) -> None:
        os.set_blocking(pipe.fileno(), False)
        with suppress(OSError):  # more than this user may have
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.pipe = pipe
        self.ended = False
        self._begun: list[bytes] = []  # of a message, joined once it is whole

    def read(self) -> list[dict[str, Any]]:
        """The messages that are there and whole."""
        try:
            chunk = os.read(self.pipe.fileno(), _PIPE_BYTES)
        except BlockingIOError:
            return []
        self.ended = not chunk
        *ends, rest = chunk.split(b"\n")
        if ends:
            ends[0] = b"".join([*self._begun, ends[0]])
            self._begun.clear()
        self._begun.append(rest)
        return [json.loads(line) for line in ends]


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
