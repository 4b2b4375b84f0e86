"""What a search is given: its options, its listener, and its environment."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Trial
from autotune.judging.decisions.stopping import Threshold
from autotune.trials.reported import Report

Verdict = tuple[Outcome, Measurement]


class Listener(Protocol):
    """Receives what happens: the terminal."""

    def note(self, text: str) -> None: ...
    def started(self, trial: Trial) -> None: ...
    def progress(self, trial: Trial, report: Report) -> None: ...
    def ended(self, trial: Trial) -> None: ...


class Silent:
    """Listens to a search and says nothing."""

    def note(self, text: str) -> None: ...
    def started(self, trial: Trial) -> None: ...
    def progress(self, trial: Trial, report: Report) -> None: ...
    def ended(self, trial: Trial) -> None: ...


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search.

    `memory_limit_bytes` is what a trial may take, None for no limit that is known. `earlier` trials, of
    another session, are known to the sampler and to the memory model alone. To `explain` a confirmed winner,
    what lies between the baseline and it is measured in the end, as far as time allows.
    """

    seed: int = 0
    memory_limit_bytes: int | None = None
    earlier: Sequence[Trial] = ()
    explain: bool = True


@dataclass(frozen=True)
class Environment:
    """The environment of a search: its files, and a `clock` in seconds.

    `clear` ensures that a trial finds nothing of another one in its directory, and returns what to say of
    that. `settle` lets a copy of the study's file have all of it, and is called when a trial has ended.
    """

    verdict_of: Callable[[Trial], Verdict | None] = lambda _: None  # that the trial has written itself
    publish: Callable[[Threshold], None] = lambda _: None  # to running trials
    clock: Callable[[], float] = time.monotonic
    clear: Callable[[Trial], str | None] = lambda _: None
    settle: Callable[[], None] = lambda: None
    is_in_place: Callable[[], bool] = lambda: True  # the session, and not moved away
