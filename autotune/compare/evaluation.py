"""Runs the command that scores a trained model, and reads its output."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.core import secrecy, units
from autotune.core.errors import EvaluationError
from autotune.trials.runner import GUARD

_GUARD = ("/bin/sh", "-c", GUARD)
_LONGEST = 300
_NO_SCORES = frozenset({"studies", "seconds", "reports_per_s", "peak_memory_bytes", "parameters"})
_ITEMS = "_items"


def _figures(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns fields of a `results.Model`: scores on the test split, and the cost of writing its reports."""
    numbers, items = units.numbers(values), {}
    for name, value in values.items():
        each = [units.number(item) for item in value] if isinstance(value, list) else []
        if name.endswith(_ITEMS) and each and None not in each:
            items[name.removesuffix(_ITEMS)] = tuple(each)
    whole: dict[str, Any] = {
        name: int(numbers[name]) for name in ("peak_memory_bytes", "parameters") if name in numbers
    }
    return {
        "scores": {name: value for name, value in numbers.items() if name not in _NO_SCORES},
        "reports_per_s": numbers.get("reports_per_s"),
        "items": items,
        "collapsed": values.get("collapsed") is True,
        **whole,
    }


def run(command: Sequence[str], log: Path) -> dict[str, Any]:
    """Runs `command` and returns the scores that it prints; appends its stderr to `log`.

    `Program.evaluate` describes the output. The command and its children end with this process. Raises
    EvaluationError if the command fails or prints no scores.
    """
    guard = subprocess.Popen(_GUARD, stdin=subprocess.PIPE, process_group=0)  # noqa: S603 - a constant
    try:
        done = subprocess.run(  # noqa: S603 - the workload's own command
            command, stdin=subprocess.DEVNULL, capture_output=True, process_group=guard.pid, check=False
        )
    finally:
        guard.communicate()
    stderr = secrecy.hide_secrets(done.stderr.decode(errors="replace"), os.environ)
    with log.open("a", encoding="utf-8") as file:
        file.write(stderr)
    if done.returncode:
        lines = [line.strip() for line in stderr.split("\n") if line.strip()]
        last = lines[-1] if lines else "it printed nothing"
        raise EvaluationError(f"exit code {done.returncode}: {last[-_LONGEST:]}")
    try:
        return _figures(json.loads(done.stdout))
    except (ValueError, AttributeError):
        raise EvaluationError("it printed no JSON object") from None
