"""YAML from outside."""

from typing import Any

import yaml

from autotune.core.errors import InputError


def mapping(text: str, what: str) -> dict[str, Any]:
    """The mapping in YAML `text`; raises InputError that says what is wrong with `what`."""
    try:
        values = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:  # told without the line itself: it may hold a password
        at = error.problem_mark or error.context_mark
        where = f" in line {at.line + 1}, column {at.column + 1}" if at else ""
        raise InputError(f"{what}: not YAML: {error.problem or error.context}{where}") from None
    except Exception as error:  # noqa: BLE001 - PyYAML lets pass what int, datetime and deep nesting raise
        raise InputError(f"{what}: not YAML: {type(error).__name__}") from None
    if not isinstance(values, dict):
        raise InputError(f"{what}: must be a mapping, got {type(values).__name__}")
    return values
