"""The user's own nested settings as YAML or JSON, and a file with evidence in it."""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from autotune.core.errors import printable
from autotune.export.said import below
from autotune.export.winner import Exported, Winner, commented

EVIDENCE = "_autotune"


def as_yaml(winner: Winner) -> Exported:
    return Exported(yaml_of(winner, winner.settings))


def as_json(winner: Winner) -> Exported:
    return Exported(json_of(winner, winner.settings))


def yaml_of(winner: Winner, values: Mapping[str, Any], unsaid: tuple[str, ...] = ()) -> str:
    """`values` as YAML, below the evidence."""
    return winner.comment + commented(below(unsaid)) + yaml.safe_dump(dict(values), sort_keys=False)


def json_of(winner: Winner, values: Mapping[str, Any], unsaid: tuple[str, ...] = ()) -> str:
    """`values` as JSON, with the evidence in a field of its own: JSON has no comments."""
    evidence: dict[str, Any] = {name: printable(fact) for name, fact in winner.evidence.items()}
    evidence |= {"not said": list(unsaid)} if unsaid else {}
    return json.dumps({**values, EVIDENCE: evidence}, indent=2) + "\n"
