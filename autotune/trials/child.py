"""Runs one trial's workload in a child process: starts, polls and stops it, and explains its end."""

import os
import signal
import statistics
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.util import Finalize
from typing import Any

import psutil
from pydantic import TypeAdapter

from autotune.core import secrecy, units
from autotune.core.record_names import SUSPENDED
from autotune.core.trial import Failure, Outcome, Shortage, Status
from autotune.trials import failures, family, runner
from autotune.trials.fork_server import ForkServer
from autotune.trials.memory_watch import LOOK_S, GpuWatch, MemoryWatch
from autotune.trials.order import Order
from autotune.trials.output import Messages, OutputLog

_OUTCOME = TypeAdapter(Outcome)
_LONG_S = 5.0  # a wait that outlasts its limit by this much may have been a suspension


@dataclass(frozen=True)
class Stalls:
    """The longest silence allowed to a workload, if the user has set no limit."""

    untimed_s: float = 1800.0  # before the first evaluation: a step may compile, an evaluation take minutes
    shortest_s: float = 300.0  # afterwards, however short its steps and pauses are


class Child:
    """A workload that runs, or has run. Call `poll` until it has a `verdict`, or `stop`, and then `kill`."""

    def __init__(self, order: Order, server: ForkServer, stalls: Stalls = Stalls()) -> None:
        order.place.root.mkdir(exist_ok=True)  # the parent must exist: a deleted session is not recreated
        self.verdict: Outcome | None = None
        self._order, self._stalls = order, stalls
        self._hide = secrecy.hider(os.environ)  # masks secrets in all its output
        self._memory, self._cap_share = MemoryWatch(order.limits.host_bytes), 0.0
        self._gpus = GpuWatch(order.limits.gpus)
        self._process, pipe, output = server.start(order, self._memory.group)
        self._memory.begin(self.pid)
        ended = self._process, self._memory.group, order.place.work
        self._end = Finalize(self, family.kill, ended, exitpriority=0)
        self._inbox, self._output = Messages(pipe), OutputLog(output, order.place.log, self._hide)
        self._records: list[dict[str, Any]] = []
        self._begun_s = self._heard_s = time.monotonic()
        self._still_s = 0.0
        self.suspended_s = 0.0  # so far
        self._asleep = (0.0, 0.0)  # begin and end of the last time that this process may have been suspended
        self._samples, self._is_evaluated = -1, False
        self._yielded_s: float | None = None
        self._gaps_s: deque[float] = deque(maxlen=100)
        self._longest_gap_s = 0.0
        self._has_evaluated = False
        self._stopping = self._is_paused = False

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def poll(self, timeout_s: float) -> list[dict[str, Any]]:
        """Returns the new records, waiting up to `timeout_s` for the first one.

        Their `at_s` is when the workload yielded them, by the monotonic clock of its process.
        """
        deadline, left_s = time.monotonic() + timeout_s, timeout_s
        while self.verdict is None and not self._records:
            self._listen(min(left_s, LOOK_S))
            if (left_s := deadline - time.monotonic()) <= 0:
                break
        records, self._records = self._records, []
        return records

    def _listen(self, timeout_s: float) -> None:
        # Waking up for every record would take time from the training. The pause between reads grows with
        # the child's age, because a trial may be over in a second.
        pause_s = min(0.4, 0.02 * (time.monotonic() - self._begun_s), timeout_s)
        if self._stopping or not wait([self._process.sentinel], pause_s):
            readers = [reader for reader in (self._inbox, self._output) if not reader.ended]
            wait([*(reader.pipe for reader in readers), self._process.sentinel], timeout_s - pause_s)
        self._count_still(max(timeout_s, LOOK_S))
        has_died = not self._process.is_alive()  # checked first: the pipe then holds everything
        self._take(self._inbox.take())
        self._output.take()  # read after the messages: all output before the verdict is then there
        if has_died and self.verdict is None:
            self.verdict = self._explain_death()
        elif not has_died:
            self._end_excess()
            if not self._stopping:  # closing has a time limit of its own
                self._end_standstill()

    def _suspended_before(self, at_s: float) -> float:
        """Returns for how long the workload was suspended, with this process, before its record at `at_s`."""
        (begun_s, ended_s), since_s = self._asleep, self._yielded_s
        # The silence before the record must cover 90% of the suspension; else a record came meanwhile.
        if since_s is None or min(at_s, ended_s) - max(since_s, begun_s) <= 0.9 * (ended_s - begun_s):
            return 0.0
        self._asleep = (0.0, 0.0)
        self.suspended_s += ended_s - begun_s
        return ended_s - begun_s

    def _count_still(self, most_s: float) -> None:
        """Adds the time since the last call, at most `most_s`, to the time without progress."""
        now_s = time.monotonic()
        if now_s - self._heard_s > most_s + _LONG_S:  # this process may have been suspended, with all others
            self._asleep = self._heard_s + most_s, now_s
        if not self._is_paused:
            self._still_s += min(now_s - self._heard_s, most_s)
        self._heard_s = now_s  # time spent on records counts: a flood of them must not hide a standstill

    def _take(self, messages: Sequence[dict[str, Any]]) -> None:
        for message in messages:
            if "at_s" not in message:
                outcome = _OUTCOME.validate_python(message["outcome"])
                self.verdict = failures.correct_verdict(
                    replace(outcome, reason=self._hide(outcome.reason)),
                    asked_to_stop=self._stopping,
                    kernel_killed=self._memory.kernel_killed(),
                    counted_alone=self._memory.is_alone,
                    memory_share=self._memory.memory_share,
                )
                continue
            record = secrecy.each_text(message, self._hide)
            if self._samples < 0:  # the first one
                self._gpus.note(self.pid)
            if suspended_s := self._suspended_before(record["at_s"]):
                record[SUSPENDED] = suspended_s
            elif self._yielded_s is not None:
                self._gaps_s.append(record["at_s"] - self._yielded_s)
                self._longest_gap_s = max(self._longest_gap_s, self._gaps_s[-1])
            self._yielded_s = record["at_s"]
            # Progress is more samples, or the first evaluation at the same number of samples.
            is_evaluation = self._order.metric.name in record
            if record["samples"] > self._samples or (is_evaluation and not self._is_evaluated):
                self._still_s, self._is_evaluated = 0.0, is_evaluation
            self._samples = record["samples"]
            self._has_evaluated |= is_evaluation
            if self._order.limits.host_bytes and self._order.limits.caps_process:
                self._cap_share = record["memory_peak_bytes"] / self._order.limits.host_bytes
            self._records.append(record)

    def _end_excess(self) -> None:
        """Ends a trial that exceeds its memory limit, or of which the kernel has killed a process."""
        if self.verdict is not None or not self._memory.look():
            return
        if held_bytes := self._memory.excess_bytes(self.pid):
            size, limit = map(units.format_bytes, (held_bytes, self._order.limits.host_bytes or 0))
            fault = f"its processes held {size} together; its limit is {limit}"
            self.verdict = failures.failure(Failure.OOM, fault, Shortage.MACHINE)
        elif self._memory.has_missed_a_kill():
            self.verdict = failures.killed_process("it went on without it")
        if self.verdict is not None:
            self.kill()

    def _explain_death(self) -> Outcome:
        code = self._process.exitcode or 0
        if self._stopping and code == -signal.SIGTERM:
            return Outcome(Status.STOPPED, reason="was asked to stop before it had begun")
        self._output.finish()
        return failures.from_exit(
            code,
            self._output.last_words.decode(errors="replace"),
            capped=self._order.limits.caps_process,
            kernel_killed=self._memory.kernel_killed(),
            counted_alone=self._memory.is_alone,
            memory_share=self._memory.memory_share,
            cap_share=self._cap_share,
        )

    def _end_standstill(self) -> None:
        """Writes the stacks of a trial that has stood still for too long to its log, and then ends it."""
        if self.verdict is not None or self._still_s <= self._stall_limit_s():
            return
        # A checkpoint can take longer than any step before. The time for that is limited, because a hanging
        # driver looks the same.
        may_wait = self._order.limits.stall_timeout_s is None and self._still_s <= self._stalls.untimed_s
        if may_wait and family.waits_for_disk(self.pid):
            return
        for member in family.members(self.pid):  # one at a time, because all write to one log
            with suppress(psutil.Error):
                member.send_signal(runner.STACK_SIGNAL)
                member.send_signal(signal.SIGCONT)  # a suspended process would write nothing
                time.sleep(0.1)
        self._process.join(1.0)
        still_s = self._still_s
        if self._order.whole:
            # It may have advanced after all, for instance if a program it waited for died of the signal. Its
            # checkpoint may then be newer than the records read so far: read the rest.
            family.suspend(self.pid)
            self._take(self._inbox.take())
        self.verdict = failures.failure(
            Failure.TIMEOUT,
            f"no record with more samples for {still_s:.0f} s; its stack is in {self._order.place.log}",
        )
        self.kill()

    def _stall_limit_s(self) -> float:
        if self._order.limits.stall_timeout_s is not None:
            return self._order.limits.stall_timeout_s
        if not self._has_evaluated:
            return self._stalls.untimed_s
        median_s = statistics.median(self._gaps_s or [0.0])
        return max(self._stalls.shortest_s, 10 * median_s, 3 * self._longest_gap_s)

    def pause(self) -> None:
        """Suspends the process and its descendants, which keep their memory."""
        self._is_paused = True
        family.suspend(self.pid)

    def resume(self) -> None:
        """Resumes what was paused; the pause counts neither as a step nor as silence."""
        family.resume(self.pid)
        self._is_paused, self._yielded_s, self._heard_s = False, None, time.monotonic()

    def stop(self, grace_s: float) -> Outcome:
        """Asks the workload to close after its next record, kills it after `grace_s`; returns the verdict."""
        deadline = time.monotonic() + grace_s
        if self.verdict is None and self._process.is_alive():
            self._stopping = True
            self._process.terminate()  # harmless if it has just ended by itself
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
        """Kills the process and all its descendants at once."""
        self.verdict = self.verdict or Outcome(Status.STOPPED, reason="killed")
        self._gpus.note(self.pid)
        self._end()
        self._gpus.wait()
        self._inbox.pipe.close()
        self._output.close()
