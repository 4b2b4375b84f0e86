"""Safe reading of users' YAML."""

from typing import Any, NoReturn

import yaml

from autotune.core.errors import InputError


class _Loader(yaml.SafeLoader):
    """Accepts only JSON-like values, as nothing else is a setting."""


def _refuse(loader: _Loader, node: yaml.Node) -> NoReturn:
    del loader
    kind = node.tag.rpartition(":")[2]
    rule = "a value is text, a number, true, false, null, a list or a mapping"
    raise yaml.constructor.ConstructorError(
        problem=f"{rule}: got !!{kind}, which quotes make text,", problem_mark=node.start_mark
    )


for _kind in ("binary", "omap", "pairs", "set", "timestamp"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _refuse)


def mapping(text: str, what: str) -> dict[str, Any]:
    """Returns the mapping in YAML `text`; raises InputError, beginning with `what`, if it is not one."""
    try:
        values = _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:  # without the line itself, which may hold a password
        at = error.problem_mark or error.context_mark
        where = f" in line {at.line + 1}, column {at.column + 1}" if at else ""
        raise InputError(f"{what}: not YAML: {error.problem or error.context}{where}") from None
    except Exception as error:  # noqa: BLE001 - PyYAML passes on errors of int, datetime and deep nesting
        raise InputError(f"{what}: not YAML: {type(error).__name__}") from None
    if not isinstance(values, dict):
        raise InputError(f"{what}: must be a mapping, got {type(values).__name__}")
    return values
