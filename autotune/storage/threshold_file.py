"""What a running trial has to reach, in a file that the search writes and its trials read."""

import json
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter

from autotune.core import files
from autotune.judging.decisions.stopping import Threshold

_THRESHOLD = TypeAdapter(Threshold)


def write(file: Path, threshold: Threshold) -> None:
    """Puts `threshold` where running trials read it, whole or not at all."""
    files.write_whole(file, json.dumps(asdict(threshold)))


def read(file: Path) -> Threshold | None:
    """The threshold in `file`, None where there is none yet."""
    try:
        return _THRESHOLD.validate_python(json.loads(files.read(file)))
    except (OSError, ValueError):
        return None
