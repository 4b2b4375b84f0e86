"""Generated reports one by one, for readers: next to their references, each with its own scores."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from r2gen import findings, metrics
from r2gen.errors import StorageError
from r2gen.evaluate import Written


def lines(written: Sequence[Written]) -> Iterator[dict[str, Any]]:
    """Yields the data to show for every study.

    References are the full ones, because readers want to know what is true. The scores here use them too, and
    so correspond to the split's `full_bleu_4`, not to `bleu_4`.
    """
    references = [w.full_reference for w in written]
    for w, own in zip(written, metrics.each([w.report for w in written], references), strict=True):
        yield {
            "id": w.study.id,
            "images": [str(image.absolute()) for image in w.study.images],
            "reference": w.full_reference,
            "report": w.report,
            "scores": own,
            "found": findings.asserted(w.report),
            "true": findings.asserted(w.full_reference),
        }


def write(file: Path, written: Sequence[Written]) -> None:
    """Writes one JSON object per line, atomically; raises StorageError if that fails."""
    temporary = file.with_name(f"{file.name}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(line) + "\n" for line in lines(written))
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StorageError(f"reports {file}: cannot be written: {error.strerror}") from None
