"""A report as JSON, for scripts: the fields of its dataclasses, under their names."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from autotune.reports.model import Report

FORMAT = 1


def render(report: Report) -> str:
    """`report` as strict JSON: a number that is not finite is null."""
    return written(asdict(report))


def written(values: Mapping[str, Any]) -> str:
    """`values` as strict JSON, with the format's number."""
    plain = _plain({"format": FORMAT, **values})
    return json.dumps(plain, indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
