"""Suggestions that were not started, each with what they were refused for. Frozen, without I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from autotune.core.settings import Config

# What sessions say in words alone that were written before there was a kind to it.
_OF_MEMORY = ("needs no less memory than", "predicted to need")
_OF_LIMITS = "effective batch "


class Refused(StrEnum):
    """The reason not to run a suggestion."""

    LIMITS = "limits"  # it lies outside of the space's
    MEMORY = "memory"  # it is known not to fit
    SPEED = "speed"  # it cannot win
    TRIED = "tried"


@dataclass(frozen=True)
class PassedOver:
    """A suggestion that was not worth starting; `reason` says why in a line for people."""

    config: Config
    kind: Refused
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {"config": dict(self.config), "kind": str(self.kind), "reason": self.reason}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls(values["config"], Refused(values["kind"]), values["reason"])

    @classmethod
    def in_words(cls, config: Config, reason: str) -> Self:
        """One that was written before there was a kind to it."""
        if reason.startswith(_OF_LIMITS):
            return cls(config, Refused.LIMITS, reason)
        return cls(config, Refused.MEMORY if reason.startswith(_OF_MEMORY) else Refused.SPEED, reason)
