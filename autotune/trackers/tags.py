"""Tags of W&B runs: workload, device, precision, and the user's own. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.core import units
from autotune.core.errors import InputError
from autotune.core.secrecy import cleaned, refuse

_PRECISION = "precision"
_LONGEST = 64  # characters in a W&B tag


def of_session(workload: str, device: str, own: Sequence[str]) -> tuple[str, ...]:
    """Returns the tags of every run of a session: workload, device, and the user's `own`."""
    texts = (str(cleaned(text)).strip()[:_LONGEST] for text in (workload, device, *own))
    return tuple(dict.fromkeys(filter(None, texts)))


def of_trial(session: Sequence[str], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the tags of a trial's run: its session's, and its precision if it has one."""
    precision = config.get(_PRECISION)
    return tuple(dict.fromkeys((*session, *([str(precision)] if precision else ()))))


def check(own: Sequence[str]) -> tuple[str, ...]:
    """Returns the values of --tag; raises InputError for tags that W&B rejects and for API keys."""
    refuse({"--tag": own}, "command line")
    for tag in own:
        if not 0 < len(tag.strip()) <= _LONGEST:
            raise InputError(f"--tag: a tag has 1 to {_LONGEST} characters: got {units.shown(tag)}")
    return tuple(own)
