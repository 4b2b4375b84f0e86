"""Values in JSON files, written atomically; a missing or invalid file is read as None."""

import json
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from autotune.core import files

T = TypeVar("T")


class JsonFile(Generic[T]):
    def __init__(self, kind: type[T]) -> None:
        self._adapter = TypeAdapter(kind)

    def write(self, file: Path, value: T) -> None:
        files.write_whole(file, json.dumps(self._adapter.dump_python(value, mode="json")))

    def read(self, file: Path) -> T | None:
        try:
            return self._adapter.validate_json(files.read(file))
        except (OSError, ValueError):
            return None
