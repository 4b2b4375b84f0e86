"""Restarts the process of a search whose Ray has died, resuming from the study as after a kill."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from autotune.storage.lock import Held
from autotune.storage.store import resume_command
from autotune.system.guardian import Guardian
from autotune.system.scratch import Scratch

MOST_LOSSES = 3  # in a row, without a trial ending in between
_LOSSES = "AUTOTUNE_RAY_LOSSES"  # how often Ray has died in a row, and the trials left at the last time
_WANDB_SERVICE = "WANDB_SERVICE"  # address of W&B's service process, the only one that W&B would try


def how_to_go_on(session: Path) -> str:
    return f"nothing is lost; continue with: {resume_command(session)}"


def losses(known: str | None, remaining: int) -> int:
    """Counts Ray's deaths in a row, this one included; `known` is what the last one recorded."""
    times, _, left = (known or "").partition(" ")
    return int(times) + 1 if left == str(remaining) else 1


def begin_anew(
    session: Path,
    options: Sequence[str],
    remaining: int,
    reason: str,
    say: Callable[[str], None],
    *,
    scratch: Scratch,
    held: Held,
) -> NoReturn:
    """Replaces this process, whose threads may wait for Ray forever, by one that resumes `session`.

    The new process inherits the lock `held`, so that no other can take the session in between. Its
    environment omits the temporary directory and services that have ended.
    """
    times = losses(os.environ.get(_LOSSES), remaining)
    if times >= MOST_LOSSES:
        give_up(f"{reason}, {times} times in a row; {how_to_go_on(session)}", 1, scratch.guardian)
    scratch.guardian.end_what_it_left()  # W&B's service, say, would take the new one for the old
    environment = {name: value for name, value in scratch.outside.items() if name != _WANDB_SERVICE}
    say(f"{reason}: it is started again, and the search continues from its study")
    environment |= {_LOSSES: f"{times} {remaining}"} | held.hand_over()
    command = [sys.executable, "-m", "autotune", "resume", *options, "--", str(session)]
    os.execve(sys.executable, command, environment)  # noqa: S606


def give_up(message: str, code: int, guardian: Guardian) -> NoReturn:
    """Prints `message` and ends this process, whatever its threads wait for."""
    guardian.end_what_it_left()
    print(f"autotune: {message}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(code)
