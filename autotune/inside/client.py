"""The API for a training's own loop: report, should_stop, workdir, settings."""

import json
import os
from pathlib import Path
from typing import Any

from autotune.inside.site import autotune_figures
from autotune.inside.site import autotune_wire as wire

_wire, _pace = wire.Wire(), autotune_figures.Pace()


def report(**record: Any) -> None:
    """Reports a step or an evaluation to the tuner, with the `samples` so far and any other measurements.

    May be called from any thread and subprocess of a trial; in a distributed training, only rank 0 is heard.
    Does nothing outside of a trial, or if the tuner is gone. Raises nothing: a record that cannot be sent
    ends the trial with a one-line error.
    """
    if wire.SOCKET not in os.environ or wire.rank():
        return
    try:
        mark = {} if _pace.has_settled() else {"queued": True}
        _wire.tell({"record": record, **mark})
    except Exception as error:  # noqa: BLE001 - a value's own class can do anything
        _wire.tell({"error": {"type": type(error).__name__, "message": str(error)}})


def should_stop() -> bool:
    """Returns True if the trial should end now, False outside of a trial."""
    return _wire.is_stopped()


def workdir() -> Path | None:
    """Returns the trial's directory for its checkpoint, None outside of a trial."""
    directory = os.environ.get(wire.WORKDIR)
    return Path(directory) if directory else None


def settings() -> dict[str, Any]:
    """Returns the trial's settings, {} outside of a trial."""
    text = os.environ.get(wire.SETTINGS) or os.environ.get(wire.OVERRIDES)  # an exported command may have one
    values: dict[str, Any] = json.loads(text or "{}")
    return values
