"""The interface of a tracker, and its context: the search or training whose runs it logs."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from autotune.core import files, units
from autotune.core.errors import InputError
from autotune.core.measurement import Measurement, Metric
from autotune.core.secrecy import refuse_secrets, without_secrets
from autotune.core.trial import Outcome
from autotune.judging.decisions.history import History
from autotune.storage.layout import SessionDir, TrainingDir
from autotune.trials.report import TrialReport

_LONGEST_TAG = 64  # characters in a W&B tag
SUMMARY = "summary"  # the session's own run
TRAINING = "training"  # the one run of a whole training


@dataclass(frozen=True)
class Context:
    """The search or training whose runs are logged."""

    place: SessionDir | TrainingDir
    group: str  # the session's name, also for the training of its winner
    metric: Metric
    tags: tuple[str, ...] = ()  # of every run
    knobs: tuple[str, ...] = ()  # the settings that are searched; none in a training
    wandb: str = "auto"  # its mode

    @property
    def kind(self) -> str:
        return "training" if isinstance(self.place, TrainingDir) else "search"

    def key(self, tracker: str) -> str:
        """Returns a random prefix for run IDs, which distinguishes sessions of the same name."""
        file = self.place.tracker_dir(tracker) / "session-key"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(secrets.token_hex(4), encoding="ascii")
        return files.read(file)


class Tracker(ABC):
    """Logs runs, by name: a trial's number such as `0003`, or `training`. Several may be open at a time.

    All calls come from one thread, which reports the first exception; earlier calls may have failed.
    """

    title: ClassVar[str]

    def __init__(self, context: Context) -> None:
        """Stores the `context`; anything slow waits for the first call."""
        self.context = context

    @abstractmethod
    def begin(self, run: str, settings: Mapping[str, Any]) -> None:
        """Starts a run, or continues the run of an earlier process."""

    @abstractmethod
    def log(self, run: str, report: TrialReport) -> None:
        """Logs a report, unless the run could not be started."""

    @abstractmethod
    def end(self, run: str, outcome: Outcome, measurement: Measurement | None) -> None:
        """Ends a run; an interrupted one may be continued. `measurement` is None if the process was lost."""

    def summarise(self, history: History, report_file: Path) -> None:  # noqa: B027 - optional
        """Logs a session's results, and its report if that file exists."""

    def close(self) -> None:  # noqa: B027 - optional
        """Finishes everything; may wait for uploads."""

    def recover(self) -> bool:
        """Restarts a service that died, after a call has failed; returns True if the call may succeed now."""
        return False

    def abandon(self) -> str:
        """Ends the process for which a call waits; returns advice for the user, as the end of a sentence."""
        return ""


def session_tags(workload: str, device: str, own: Sequence[str]) -> tuple[str, ...]:
    """Returns the tags of every run of a session: workload, device, and the user's `own`."""
    texts = (str(without_secrets(text)).strip()[:_LONGEST_TAG] for text in (workload, device, *own))
    return tuple(dict.fromkeys(filter(None, texts)))


def run_tags(session: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the tags of a trial's run: its session's tags, and its precision if it has one."""
    precision = config.get("precision")
    return tuple(dict.fromkeys((*session, *([str(precision)] if precision else ()))))


def check_tags(own: Sequence[str]) -> tuple[str, ...]:
    """Returns the values of --tag; raises InputError for tags that W&B rejects and for API keys."""
    refuse_secrets({"--tag": own}, "command line")
    for tag in own:
        if not 0 < len(tag.strip()) <= _LONGEST_TAG:
            raise InputError(f"--tag: a tag has 1 to {_LONGEST_TAG} characters, got {units.quote(tag)}")
    return tuple(own)
