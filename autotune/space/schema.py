"""JSON Schema of search spaces, for completion and checks in editors."""

import json
from pathlib import Path
from typing import Any

from autotune.core import files
from autotune.space.space import Space


def write(output: Path | None) -> int:
    """Writes the schema to a file, or prints it; returns the exit code."""
    text = json.dumps(build(), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        files.write_to_stdout(text)
    else:
        files.write(output, text)
    return 0


def build() -> dict[str, Any]:
    """Returns the schema of search spaces, in the draft that every editor supports."""
    return {"$schema": "http://json-schema.org/draft-07/schema#", **Space.model_json_schema()}
