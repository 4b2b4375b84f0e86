"""Suggestions that were not started, each with what they were refused for. Frozen, without I/O."""

from dataclasses import dataclass
from enum import StrEnum

from autotune.core.settings import Config


class RejectedFor(StrEnum):
    """The reason not to run a suggestion."""

    LIMITS = "limits"  # it lies outside of the space's
    MEMORY = "memory"  # it is known not to fit
    SPEED = "speed"  # it cannot win
    TRIED = "tried"


@dataclass(frozen=True)
class RejectedSuggestion:
    """A suggestion that was not worth starting; `reason` says why in a line for people."""

    config: Config
    kind: RejectedFor
    reason: str
