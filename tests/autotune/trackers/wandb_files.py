"""Reads the files of W&B's offline runs."""

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Run:
    """The contents of an offline run's file."""

    id: str = ""
    group: str = ""
    name: str = ""
    host: str = ""
    tags: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)
    files: Path = Path()
    artifacts: dict[str, dict[str, bytes]] = field(default_factory=dict)
    exit_code: int | None = None

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.history if name in row]

    def table(self, name: str) -> list[dict[str, Any]]:
        """Returns the rows of a table by column name."""
        logged = json.loads((self.files / self.summary[f"{name}/path"]).read_text())
        return [dict(zip(logged["columns"], row, strict=True)) for row in logged["data"]]


def read_run(file: Path) -> Run:
    from wandb.proto.wandb_internal_pb2 import Record

    run = Run(files=file.parent / "files")
    for data in log_records(file.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.id, run.group = record.run.run_id, record.run.run_group
            run.name, run.host = record.run.display_name, record.run.host
            run.tags = tuple(record.run.tags)
            run.config |= items(record.run.config.update)
        elif kind == "history":
            run.history.append(items(record.history.item))
        elif kind == "summary":
            run.summary |= items(record.summary.update)
        elif kind == "config":
            run.config |= items(record.config.update)
        elif kind == "artifact":
            contents = record.artifact.manifest.contents
            run.artifacts[record.artifact.type] = {c.path: Path(c.local_path).read_bytes() for c in contents}
        elif kind == "metric" and record.metric.step_metric:
            run.axes[record.metric.glob_name] = record.metric.step_metric
        elif kind == "exit":
            run.exit_code = record.exit.exit_code
    return run


def log_records(data: bytes) -> Iterator[bytes]:
    """Yields the records of LevelDB's log format: blocks of 32 KiB with checksum, length, kind and bytes.

    A file that has just been created is still empty.
    """
    assert data[:4] in {b"", b":W&B"}
    position, record = 7, b""
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        checksum, length, kind = struct.unpack_from("<IHB", data, position)
        piece = data[position + 7 : position + 7 + length]
        if kind == 0 or len(piece) < length:
            return  # the end, or a record that a kill cut short
        assert zlib.crc32(data[position + 6 : position + 7 + length]) == checksum
        position += 7 + length
        record = piece if kind in {1, 2} else record + piece  # 1 whole, 2 first, 3 middle, 4 last
        if kind in {1, 4}:
            yield record


def items(entries: Any) -> dict[str, Any]:
    return {e.key or "/".join(e.nested_key): json.loads(e.value_json) for e in entries}


def read_runs(directory: Path) -> list[Run]:
    """Returns the runs of a session by name, then in the order of writing."""
    files = sorted(directory.glob("wandb/*run-*/*.wandb"), key=lambda file: file.stat().st_mtime)
    return sorted((run for run in map(read_run, files) if run.id), key=lambda run: run.name)
