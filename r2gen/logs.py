"""A training's records in files: one a line as JSON, and charts for TensorBoard. Each is continued later."""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from r2gen.errors import InputError, StorageError

_PREFIX = "events.out.tfevents."  # with the moment of its making: TensorBoard reads files in that order
_GROUPS = ("train_", "val_", "test_")

Record = Mapping[str, Any]


@contextmanager
def _told(place: Path) -> Iterator[None]:
    """Raises StorageError where `place` cannot be written."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{place}: cannot be written: {error.strerror}") from None


class RecordFile:
    """Appends every record to a file as a line of JSON, with the moment `at`, in seconds since 1970.

    What is not a number is null there, because JSON has no word for it. After a kill, training resumes from
    its last checkpoint and records come again: of those with the same samples the last ones count.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        with _told(file):
            file.absolute().parent.mkdir(parents=True, exist_ok=True)
            is_cut = _is_cut(file)
            self._stream = file.open("a", encoding="utf-8")
            self._append("\n" if is_cut else "")  # what a kill cut short gets a line of its own

    def write(self, record: Record) -> None:
        with _told(self._file):
            self._append(json.dumps({"at": time.time()} | {k: _plain(v) for k, v in record.items()}) + "\n")

    def _append(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()  # for readers that follow the file, and for a kill

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with _told(self._file):
            self._stream.close()


def _is_cut(file: Path) -> bool:
    """Whether the last line of `file` has no end."""
    if not file.exists() or not file.stat().st_size:
        return False
    with file.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read() != b"\n"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Board:
    """Writes the numbers of every record to an event file in a directory; the steps are samples.

    Raises InputError where TensorBoard is not installed.
    """

    def __init__(self, directory: Path) -> None:
        try:  # late: an evaluation, or a training without it, needs no TensorBoard
            from tensorboard.compat.proto import event_pb2, summary_pb2  # noqa: PLC0415
            from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415
        except ImportError:
            raise InputError("--tensorboard: needs TensorBoard: pip install tensorboard") from None
        self._directory, self._events, self._summaries = directory, event_pb2, summary_pb2
        with _told(directory):
            directory.mkdir(parents=True, exist_ok=True)
            self._goes_on = any(directory.glob(f"{_PREFIX}*"))
            self._file = (directory / f"{_PREFIX}{time.time_ns()}").open("wb")
            self._writer = RecordWriter(self._file)
            self._append(0, file_version="brain.Event:2")

    def write(self, record: Record) -> None:
        with _told(self._directory):
            if self._goes_on:  # from a checkpoint: what an earlier file has beyond it is done again
                self._goes_on = False
                start = self._events.SessionLog(status=self._events.SessionLog.START)
                # A run begins with its last evaluation again: the step before that is no part of it.
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
        with _told(self._directory):
            self._writer.close()


def tagged(record: Record) -> dict[str, float]:
    """The numbers of `record` under the names of their charts: `train/loss`, `val/bleu_4`, `test/bleu_4`."""
    other = "train_" if "train_loss" in record else "val_"
    return {
        _tag(name, other): float(value)
        for name, value in record.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "samples"
    }


def _tag(name: str, other: str) -> str:
    group = next((group for group in _GROUPS if name.startswith(group)), other)
    return f"{group[:-1]}/{name.removeprefix(group)}"
