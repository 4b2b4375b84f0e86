"""The search space as JSON Schema, from which editors complete, explain and check a search space's YAML."""

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import TupleSchema, WithDefaultSchema

from autotune.core import files
from autotune.space.space import Space
from autotune.workloads import registry


def write(output: Path | None) -> int:
    """Writes the schema to a file, or prints it; the exit code."""
    if output is None:
        files.write_to_stdout(text())
    else:
        files.write(output, text())
    return 0


def text() -> str:
    """The schema as the file that comes with the search spaces."""
    return json.dumps(of_spaces(), indent=2, ensure_ascii=False) + "\n"


def of_spaces() -> dict[str, Any]:
    """The schema of every search space; the built-in workload's settings are known by name."""
    schema = Space.model_json_schema(schema_generator=_ForEditors)
    settings = registry.load(registry.BUILTIN).settings_model()
    if settings is not None:
        schema["$defs"]["Settings"] = _optional(settings.model_json_schema(schema_generator=_ForEditors))
        schema |= {
            "if": {"properties": {"workload": {"const": registry.BUILTIN}}},
            "then": _named(schema["$defs"]),
        }
    return {"$schema": _ForEditors.schema_dialect, **schema, "title": "A search space of autotune"}


def _optional(settings: dict[str, Any]) -> dict[str, Any]:
    """A baseline need not say everything: what it leaves out is the default, or on the command line."""
    return {name: value for name, value in settings.items() if name != "required"}


def _named(definitions: dict[str, Any]) -> dict[str, Any]:
    """The baseline and the knobs, where the settings are known: their names, and the values of choices."""
    settings = definitions["Settings"]["properties"]
    knobs = {
        name: {
            "description": setting.get("description", ""),
            "properties": {"choice": {"items": {"$ref": f"#/$defs/Settings/properties/{name}"}}},
        }
        for name, setting in settings.items()
    }
    return {
        "properties": {
            "baseline": {"$ref": "#/$defs/Settings"},
            "knobs": {"properties": knobs, "propertyNames": {"enum": list(settings)}},
        }
    }


class _ForEditors(GenerateJsonSchema):
    """JSON Schema of draft 7, which every editor reads, without what only clutters completion."""

    schema_dialect = "http://json-schema.org/draft-07/schema#"

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the interface of pydantic
        """Titles would say the names of fields again."""
        return False

    def tuple_schema(self, schema: TupleSchema) -> JsonSchemaValue:
        """Pairs of one type: later drafts list the types of the places, which draft 7 does not know."""
        made = super().tuple_schema(schema)
        places = made.pop("prefixItems", None)
        return {**made, "items": places[0]} if places else made

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        """No `default: null`, which an editor would insert."""
        made = super().default_schema(schema)
        return {name: value for name, value in made.items() if name != "default" or value is not None}

    def encode_default(self, dft: Any) -> Any:
        encoded = super().encode_default(dft)
        if isinstance(encoded, dict):
            return {name: value for name, value in encoded.items() if value is not None}
        return encoded
