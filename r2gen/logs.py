"""Logs a training's records: JSON lines in a file, and charts for TensorBoard. Resumed runs append."""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from r2gen.errors import InputError, StorageError

_PREFIX = "events.out.tfevents."  # followed by the time of creation: TensorBoard reads files in that order
_GROUPS = ("train_", "val_", "test_")

Record = Mapping[str, Any]


@contextmanager
def _storage_errors(place: Path) -> Iterator[None]:
    """Raises StorageError if `place` cannot be written."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{place}: cannot be written: {error.strerror}") from None


class RecordFile:
    """Appends every record to a file as a line of JSON, with its time `at` in seconds since 1970.

    NaN and infinities become null, because JSON lacks them. After a kill, training resumes from its last
    checkpoint and repeats records: of several records with the same samples, the last counts.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        with _storage_errors(file):
            file.absolute().parent.mkdir(parents=True, exist_ok=True)
            is_cut = _is_cut(file)
            self._stream = file.open("a", encoding="utf-8")
            self._append("\n" if is_cut else "")  # terminates a line that a kill cut short

    def write(self, record: Record) -> None:
        with _storage_errors(self._file):
            self._append(json.dumps({"at": time.time()} | {k: _plain(v) for k, v in record.items()}) + "\n")

    def _append(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()  # for readers that follow the file, and for a kill

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with _storage_errors(self._file):
            self._stream.close()


def _is_cut(file: Path) -> bool:
    """Returns True if the last line of `file` lacks its newline."""
    if not file.exists() or not file.stat().st_size:
        return False
    with file.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read() != b"\n"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Board:
    """Writes the numbers of every record to a TensorBoard event file; the step is the number of samples.

    Raises InputError if TensorBoard is not installed.
    """

    def __init__(self, directory: Path) -> None:
        try:  # late: TensorBoard is optional
            from tensorboard.compat.proto import event_pb2, summary_pb2  # noqa: PLC0415
            from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415
        except ImportError:
            raise InputError("--tensorboard: needs TensorBoard: pip install tensorboard") from None
        self._directory, self._events, self._summaries = directory, event_pb2, summary_pb2
        with _storage_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            self._goes_on = any(directory.glob(f"{_PREFIX}*"))
            self._file = (directory / f"{_PREFIX}{time.time_ns()}").open("wb")
            self._writer = RecordWriter(self._file)
            self._append(0, file_version="brain.Event:2")

    def write(self, record: Record) -> None:
        with _storage_errors(self._directory):
            if self._goes_on:  # resumed: steps beyond the checkpoint in an earlier file are repeated
                self._goes_on = False
                start = self._events.SessionLog(status=self._events.SessionLog.START)
                # A resumed run repeats its last evaluation, but not the step before it.
                self._append(record["samples"] + ("train_loss" not in record), session_log=start)
            values = [self._summaries.Summary.Value(tag=t, simple_value=v) for t, v in tagged(record).items()]
            self._append(record["samples"], summary=self._summaries.Summary(value=values))

    def _append(self, samples: int, **content: Any) -> None:
        event = self._events.Event(wall_time=time.time(), step=samples, **content)
        self._writer.write(event.SerializeToString())
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with _storage_errors(self._directory):
            self._writer.close()


def tagged(record: Record) -> dict[str, float]:
    """Returns the numbers of `record` by chart name: `train/loss`, `val/bleu_4`, `test/bleu_4`."""
    other = "train_" if "train_loss" in record else "val_"
    return {
        _tag(name, other): float(value)
        for name, value in record.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "samples"
    }


def _tag(name: str, other: str) -> str:
    group = next((group for group in _GROUPS if name.startswith(group)), other)
    return f"{group[:-1]}/{name.removeprefix(group)}"
