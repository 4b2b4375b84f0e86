"""What a training calls from its own loop: it reports, asks whether to stop, and where and what it is."""

import json
import os
from pathlib import Path
from typing import Any

from autotune.inside.site import autotune_gpu
from autotune.inside.site import autotune_wire as wire

_wire, _pace = wire.Wire(), autotune_gpu.Pace()


def report(**record: Any) -> None:
    """Tells the tuner of a step, or of an evaluation: `samples` so far, and whatever else was measured.

    From any thread and subprocess of a trial; of a distributed training's ranks the first one counts. Outside
    of a trial, and when the tuner is gone, it does nothing. It raises nothing: a record that cannot be sent
    ends the trial with one line.
    """
    if wire.SOCKET not in os.environ or wire.rank():
        return
    try:
        mark = {} if _pace.has_settled() else {"queued": True}
        _wire.tell({"record": record, **mark})
    except Exception as error:  # noqa: BLE001 - a value's own class can do anything
        _wire.tell({"error": {"type": type(error).__name__, "message": str(error)}})


def should_stop() -> bool:
    """Whether the trial should end now: it has seen enough, or has been stopped. False outside of a trial."""
    return _wire.is_stopped()


def workdir() -> Path | None:
    """The trial's directory for its checkpoint; None outside of a trial."""
    directory = os.environ.get(wire.WORKDIR)
    return Path(directory) if directory else None


def settings() -> dict[str, Any]:
    """The trial's settings; empty outside of a trial."""
    found: dict[str, Any] = json.loads(os.environ.get(wire.SETTINGS, "{}"))
    return found
