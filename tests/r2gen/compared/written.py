"""Generated reports for tests."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from r2gen.compared.entries import Entry

HOSTILE = '<script>window.hacked = true</script><img src=x onerror="window.hacked = true"> & \u202e%{x}'


def entry(study: object = 1, report: str = "as written", reference: str = "as it is", **rest: Any) -> Entry:
    given = {"images": (), "scores": {"bleu_4": 0.1}, "found": (), "true": (), **rest}
    return Entry(id=str(study), report=report, reference=reference, **given)


def write(file: Path, entries: Iterable[Entry]) -> Path:
    """Writes `entries` as `evaluate --reports` does."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(asdict(one))}\n" for one in entries))
    return file
