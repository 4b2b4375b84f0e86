"""JSON Schema of search spaces, for completion and checks in editors."""

import json
from pathlib import Path
from typing import Any

from autotune.core import files
from autotune.core.settings import LENGTH
from autotune.space.space import Space
from autotune.workloads import registry

_DIALECT = "http://json-schema.org/draft-07/schema#"  # supported by every editor


def write(output: Path | None) -> int:
    """Writes the schema to a file, or prints it; returns the exit code."""
    text = json.dumps(build(), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        files.write_to_stdout(text)
    else:
        files.write(output, text)
    return 0


def build() -> dict[str, Any]:
    """Returns the schema of search spaces, which includes the built-in workload's settings."""
    schema = {"$schema": _DIALECT, **Space.model_json_schema()}
    settings = registry.load(registry.BUILTIN).settings_model
    if settings is None:
        return schema
    known = settings.model_json_schema() | {"required": []}  # a baseline may leave all of them out
    schema["$defs"]["Settings"] = known
    schema["if"] = {"properties": {"workload": {"const": registry.BUILTIN}}}
    knobs = {
        name: {
            "description": setting["description"],
            "properties": {"choice": {"items": {"$ref": f"#/$defs/Settings/properties/{name}"}}},
        }
        for name, setting in known["properties"].items()
    }
    schema["then"] = {
        "properties": {
            "baseline": {"$ref": "#/$defs/Settings"},
            "knobs": {"properties": {**knobs, LENGTH: {}}, "additionalProperties": False},
        }
    }
    return schema
