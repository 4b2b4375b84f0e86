"""The inputs of a search: its options, its listener, and its environment."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Trial
from autotune.judging.decisions.stopping import Threshold
from autotune.trials.report import TrialReport

Verdict = tuple[Outcome, Measurement]


class Listener:
    """Receives the events of a search, and ignores them; the terminal is a subclass."""

    def note(self, text: str) -> None: ...
    def started(self, trial: Trial) -> None: ...
    def progress(self, trial: Trial, report: TrialReport) -> None: ...
    def ended(self, trial: Trial) -> None: ...


@dataclass(frozen=True)
class SearchOptions:
    seed: int = 0
    memory_limit_bytes: int | None = None  # of a trial; None if no limit is known
    earlier: Sequence[Trial] = ()  # of another session; only the sampler and the memory model use them
    explain: bool = True  # measures, if time allows, what each knob of a confirmed winner contributes


@dataclass(frozen=True)
class Environment:
    """The environment of a search: its files and its clock."""

    verdict_of: Callable[[Trial], Verdict | None] = lambda _: None  # as the trial itself wrote it
    publish: Callable[[Threshold], None] = lambda _: None  # to running trials
    clock: Callable[[], float] = time.monotonic  # in seconds
    clear: Callable[[Trial], str | None] = lambda _: None  # empties a trial's directory; returns a note
    settle: Callable[[], None] = lambda: None  # flushes the study to its file, after each trial
    is_in_place: Callable[[], bool] = lambda: True  # False once the session was moved away or deleted
