"""What a search is asked to do, as the user says it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Probing:
    """What a user says about a training that is given as a command line."""

    score: str | None = None
    maximize: bool = False
    minimize: bool = False
    only: str | None = None
    yes: bool = False  # ask nothing


@dataclass(frozen=True, kw_only=True)
class SearchRequest(Probing):
    """The options of a search, as `python -m autotune search --help` explains them. None means not given."""

    training: Sequence[str] | None = None  # a search space, or the words of a command line
    data: Path | None = None
    space: str | None = None  # a file, or the name of a built-in space
    baseline: Path | None = None
    model: str | None = None
    warm_start: Path | None = None
    skip_bad_samples: bool = False

    session: Path | None = None
    wandb: str = "auto"
    tracker: Sequence[str] | None = None
    tag: Sequence[str] | None = None
    as_json: bool = False

    trials: int | None = None
    time: str | None = None
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
    seed: int = 0
