"""The output, files and hook messages of a command as one stream of messages, in order of time."""

import heapq
import itertools
import math
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from autotune.inside.inbox import Inbox
from autotune.inside.messages import Message, SamplesSeen, Scores, Step
from autotune.workloads.command import ending
from autotune.workloads.command.process import OutputLine
from autotune.workloads.command.scores import LOGS, Follower, Patterns
from autotune.workloads.command.spec import Spec

_STEPS_REMEMBERED = 50
_ON_ITS_WAY_S, _LATE_S = 0.05, 0.2  # delay of printed or sent messages: usual, and on a busy machine
# A shorter gap may come from a busy CPU. Mistaken for an evaluation, it would date the scores a step too
# early, and a trial that ends with them would miss its end.
_LONG_STEPS, _LONG_S = 10, 0.2
_TOGETHER_S = 0.5  # scores of one evaluation are printed within this time
_NOT_HEARD = "only scores that Python logs with torch.utils.tensorboard, tensorboardX or wandb are seen"
_NO_STEP = (
    "no optimizer step was seen; for a script without PyTorch 2.0 or newer, give workload.samples or "
    "workload.steps a pattern"
)


class Stream:
    def __init__(self, spec: Spec, inbox: Inbox, follower: Follower | None) -> None:
        self._spec, self._inbox, self._follower = spec, inbox, follower
        progress = {"samples": spec.samples, "steps": spec.steps}
        self._progress = Patterns({name: pattern for name, pattern in progress.items() if pattern})
        self._scores = Patterns(spec.patterns)
        self._printed: SimpleQueue[tuple[OutputLine, Step | SamplesSeen | Scores]] = SimpleQueue()
        self._timeline = Timeline()
        self._steps_s: deque[float] = deque(maxlen=_STEPS_REMEMBERED)
        self.known_s = -math.inf  # everything up to this time has been yielded

    def hear(self, line: OutputLine) -> bool:
        """Takes a line of the output, on the reader thread; returns True if it matched a pattern."""
        progress = self._progress.find(line.text)
        if "steps" in progress:
            self._printed.put((line, Step(None)))
        if math.isfinite(samples := progress.get("samples", math.nan)):
            self._printed.put((line, SamplesSeen(int(samples))))
        if scores := self._scores.find(line.text):
            self._printed.put((line, Scores(scores)))
        return bool(progress or scores)

    def until(self, heard_s: float) -> Iterator[Message]:
        """Yields messages before `heard_s`, up to which all sources were read; holds back recent ones."""
        self._take_in()
        self.known_s = min(heard_s, known_s(time.monotonic(), self._steps_s))
        return self._timeline.until(self.known_s)

    def rest(self) -> Iterator[Message]:
        """Yields the remaining messages of an ended command."""
        self._inbox.finish()
        self._take_in()
        self.known_s = math.inf
        return self._timeline.until(math.inf)

    def _take_in(self) -> None:
        while (message := self._inbox.get(0.0)) is not None:
            match message.content:
                case Step() if self._spec.counts_by_output:
                    continue
                case Step():
                    self._steps_s.append(message.at_s)
                case Scores(scores, place):  # only those that are named, and logged in a followed directory
                    named = self._follower.named_scores(place, scores) if self._follower else {}
                    if not named:
                        continue
                    message = message._replace(content=Scores(named))
            self._timeline.add(message)
        with suppress(Empty):
            while True:
                line, content = self._printed.get_nowait()
                is_late = isinstance(content, Scores) and not line.is_stamped
                ended_s = evaluated_s(line.at_s, self._steps_s) if is_late else None
                self._timeline.add(Message(line.at_s if ended_s is None else ended_s, content))
        for message in self._follower.look() if self._follower else ():
            self._timeline.add(message)

    def missing(self, *, has_steps: bool) -> Iterator[str]:
        """Yields a line for the step, unless it `has_steps`, and for each score that was not seen."""
        if not has_steps:
            name, pattern = next(iter(self._progress.missing.items()), ("", ""))
            yield f"workload.{name}: {ending.short(pattern, 60)!r} matched no line" if name else _NO_STEP
        if self._follower and self._spec.file and (unseen := self._follower.missing):
            kind, place = self._spec.file
            for name, key in unseen.items():
                yield f"workload.{kind}: {name}: no {key!r} was found in {place}"
            yield from [_NOT_HEARD] if kind in LOGS else []
        for name, pattern in self._scores.missing.items():
            text = self._scores.no_number.get(name)
            why = "matched no line" if text is None else f"found no number, but {ending.short(text, 30)!r}"
            yield f"workload.quality.{name}: {ending.short(pattern, 60)!r} {why}"


class Timeline:
    """Releases messages in order of time; scores within 0.5 s become one evaluation. Pure."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Message]] = []
        self._order = itertools.count()
        self._scores: dict[str, float] = {}
        self._scored_s = self._last_s = -math.inf

    def add(self, message: Message) -> None:
        heapq.heappush(self._heap, (message.at_s, next(self._order), message))

    def until(self, moment_s: float) -> Iterator[Message]:
        """Yields the messages up to a moment; their times never decrease."""
        while self._heap and self._heap[0][0] <= moment_s:
            at_s, _, message = heapq.heappop(self._heap)
            self._last_s = at_s = max(at_s, self._last_s)
            scores = message.content.scores if isinstance(message.content, Scores) else None
            is_late = at_s > self._scored_s + _TOGETHER_S
            if scores is None or is_late or not self._scores.keys().isdisjoint(scores):
                yield from self._evaluation()
            if scores is None:
                yield message if message.at_s == at_s else message._replace(at_s=at_s)
            else:
                self._scores, self._scored_s = {**self._scores, **scores}, at_s
        if moment_s > self._scored_s + _TOGETHER_S:
            yield from self._evaluation()

    def _evaluation(self) -> Iterator[Message]:
        if self._scores:
            scores, self._scores = Scores(self._scores), {}
            yield Message(self._scored_s, scores)


def evaluated_s(now_s: float, steps_s: Sequence[float]) -> float | None:
    """Returns when an evaluation ended whose scores are read at `now_s`; steps ended at `steps_s`.

    Scores may be read only after the next step, whose time then includes the evaluation. None if no recent
    step was that long.
    """
    gaps = [(end_s - begin_s, end_s) for begin_s, end_s in itertools.pairwise(steps_s) if end_s <= now_s]
    late = [gap for gap in gaps if gap[1] > now_s - _LATE_S]
    if not late:
        return None
    usual_s = statistics.median(gap_s for gap_s, _ in gaps)
    gap_s, end_s = max(late)
    return end_s - usual_s if gap_s > max(_LONG_STEPS * usual_s, _LONG_S) else None


def known_s(now_s: float, steps_s: Sequence[float]) -> float:
    """Returns the time up to which all messages have arrived, except very late ones."""
    return now_s - (_LATE_S if evaluated_s(now_s, steps_s) is not None else _ON_ITS_WAY_S)
