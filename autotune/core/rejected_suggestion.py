"""Suggestions that were not started, and why. Frozen, without I/O."""

from dataclasses import dataclass
from enum import StrEnum

from autotune.core.settings import Config


class RejectedFor(StrEnum):
    """The reason not to run a suggestion."""

    LIMITS = "limits"  # outside the space's limits
    MEMORY = "memory"  # cannot fit
    SPEED = "speed"  # cannot win
    QUALITY = "quality"  # would lose it
    TRIED = "tried"


@dataclass(frozen=True)
class RejectedSuggestion:
    """A suggestion that was not worth starting; `reason` explains it in one line for people."""

    config: Config
    kind: RejectedFor
    reason: str
