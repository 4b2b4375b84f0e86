"""Finds out why a trial of Ray Tune has failed, from the file that Ray writes about it."""

import re
from contextlib import suppress
from pathlib import Path

from autotune.core.trial import Failure, Outcome
from autotune.trials import failures

FILE = "error.txt"
_KILLED_BY_RAY = re.compile(r"running low on memory")  # by its monitor of a machine's memory
_HEADING = re.compile(r"^Failure # \d+ .*\n", re.MULTILINE)  # one for each attempt


def outcome_of(trial_dir: Path) -> Outcome:
    """Returns the outcome of the last attempt of a failed trial."""
    text = ""
    with suppress(OSError):
        text = _HEADING.split((trial_dir / FILE).read_text(encoding="utf-8", errors="replace"))[-1].strip()
    if _KILLED_BY_RAY.search(text):
        return failures.failure(Failure.OOM, "killed by Ray: the machine was running out of memory")
    return failures.from_traceback(text)
