"""Options of searches and comparisons, as the user gave them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """The user's choice of a score, for a training given as a command line."""

    score: str | None = None
    maximize: bool = False
    minimize: bool = False
    yes: bool = False  # ask nothing


@dataclass(frozen=True, kw_only=True)
class Probing(Scoring):
    """The user's choices for a training given as a command line."""

    only: str | None = None


@dataclass(frozen=True, kw_only=True)
class JudgeRequest(Scoring):
    """The options of `python -m autotune judge`."""

    keep: float | None = None
    within: float | None = None
    pairs: int = 8
    time: str | None = None
    session: Path | None = None
    as_json: bool = False


@dataclass(frozen=True, kw_only=True)
class SearchRequest(Probing):
    """The options of a search, as `python -m autotune search --help` explains them. None means not given."""

    training: list[str] | None = None  # a search space, or the words of a command line
    data: Path | None = None
    space: str | Mapping[str, Any] | None = None  # a file, the name of a built-in space, or its content
    baseline: Path | None = None
    model: str | None = None
    warm_start: Path | None = None
    skip_bad_samples: bool = False

    session: Path | None = None
    wandb: str = "auto"
    tracker: list[str] | None = None
    tag: list[str] | None = None
    as_json: bool = False

    trials: int | None = None
    time: str | None = None
    worth: str | None = None
    samples: str | None = None

    keep: float | None = None
    within: float | None = None
    promise: str | None = None
    select: str | None = None
    target: float | None = None
    finalists: int | None = None
    repeats: int | None = None
    memory_fraction: float | None = None

    gpus_per_trial: float | None = None
    cpus_per_trial: int | None = None
    memory_limit: str | None = None
    stall_timeout: str | None = None
    keep_checkpoints: bool = False
    address: str | None = None
    device_type: str | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class ResumeRequest:
    """The options of `python -m autotune resume`."""

    session: Path
    trials: int = 0  # additional ones
    time: str | None = None  # new limit, from now on
    as_json: bool = False


@dataclass(frozen=True, kw_only=True)
class ProgramCall:
    """A search, new or resumed, that another program requests; it ends with that program."""

    parent: int  # its process
    search: SearchRequest | None = None
    resume: ResumeRequest | None = None


CALL = TypeAdapter(ProgramCall)
