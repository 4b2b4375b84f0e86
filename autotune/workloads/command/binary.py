"""TensorBoard's event files and W&B's run files: their records, as much of them as is a scalar's.

Both hold Protocol Buffers (protobuf.dev/programming-guides/encoding) in a framing of their own. What is cut
short, because it is still being written, is left for the next time. Pure.
"""

import json
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LENGTH = struct.Struct("<QI")  # of an event, and the check sum of that; another one follows the event
_CHECK_BYTES = 4
BLOCK_BYTES = 32768  # of LevelDB's log, in which W&B keeps its records
_CHUNK = struct.Struct("<IHB")  # check sum, length and kind of a chunk
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_WANDB_START = b":W&B"
_WANDB_START_BYTES = 7
_DT_FLOAT, _DT_DOUBLE = 1, 2

Fields = dict[int, list[int | bytes]]


class Parsed(NamedTuple):
    """The rows found, and up to which byte all is done with; of a CSV file up to which line."""

    rows: list[dict[str, float]]
    end: int


def fields(message: bytes) -> Fields:
    """The fields of a message by number, in their order; raises ValueError where it is none."""
    found: Fields = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            found.setdefault(key >> 3, []).append(value)
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in {_FIXED32, _FIXED64}:
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"no field is of kind {kind}")
        found.setdefault(key >> 3, []).append(message[at : at + size])
        at += size
    if at > len(message):
        raise ValueError("cut short")
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("cut short")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def _message(found: Fields, number: int) -> Fields:
    value = found.get(number, [b""])[-1]
    return fields(value) if isinstance(value, bytes) else {}


def _messages(found: Fields, number: int) -> Iterator[Fields]:
    yield from (fields(value) for value in found.get(number, []) if isinstance(value, bytes))


def _text(found: Fields, number: int) -> str:
    value = found.get(number, [b""])[-1]
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def events(data: bytes, start: int) -> Parsed:
    """Scalars by tag, a row for every event from byte `start` of one of TensorBoard's files on."""
    rows: list[dict[str, float]] = []
    while start + _LENGTH.size <= len(data):
        size, _ = _LENGTH.unpack_from(data, start)
        begin, end = start + _LENGTH.size, start + _LENGTH.size + size + _CHECK_BYTES
        if end > len(data):
            break
        with suppress(ValueError, struct.error):
            rows.append(_scalars(fields(data[begin : begin + size])))
        start = end
    return Parsed([row for row in rows if row], start)


def _scalars(event: Fields) -> dict[str, float]:
    values = _messages(_message(event, 5), 1)
    found = ((_text(value, 1), _scalar(value)) for value in values)
    return {tag: number for tag, number in found if number is not None}


def _scalar(value: Fields) -> float | None:
    """A value of a summary: a float, or since TensorFlow 2 a tensor that has one."""
    if 2 in value:
        return _number("<f", value[2][-1])
    tensor = _message(value, 8)
    form, own = {_DT_FLOAT: ("<f", 5), _DT_DOUBLE: ("<d", 6)}.get(_whole(tensor, 1), ("", 0))
    stored = (tensor.get(own) or tensor.get(4) or [b""])[-1] if form else b""
    return _number(form, stored) if form else None


def _whole(found: Fields, number: int) -> int:
    value = found.get(number, [0])[-1]
    return value if isinstance(value, int) else 0


def _number(form: str, stored: int | bytes) -> float | None:
    if not isinstance(stored, bytes) or len(stored) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, stored)[0])


def run_history(data: bytes, start: int) -> Parsed:
    """Scalars by key, a row for every `wandb.log` from byte `start` on.

    `data` is a run's file, from the beginning of one of its blocks on.
    """
    rows: list[dict[str, float]] = []
    at = end = max(start, _WANDB_START_BYTES) if data.startswith(_WANDB_START) else start
    begun = b""
    while True:
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < _CHUNK.size:  # the rest of a block is padding
            at += left
            continue
        if at + _CHUNK.size > len(data):
            break
        _, size, kind = _CHUNK.unpack_from(data, at)
        if kind == 0 or at + _CHUNK.size + size > len(data):
            break
        chunk = data[at + _CHUNK.size : at + _CHUNK.size + size]
        at += _CHUNK.size + size
        begun = chunk if kind in {_WHOLE, _FIRST} else begun + chunk
        if kind in {_WHOLE, _LAST}:
            end = at
            with suppress(ValueError):
                rows.append(_logged(fields(begun)))
    return Parsed([row for row in rows if row], end)


def _logged(record: Fields) -> dict[str, float]:
    row: dict[str, float] = {}
    for item in _messages(_message(record, 2), 1):
        key = _text(item, 1) or "/".join(
            v.decode(errors="replace") for v in item.get(2, ()) if isinstance(v, bytes)
        )
        with suppress(ValueError):
            value = json.loads(_text(item, 16))
            if isinstance(value, int | float) and not isinstance(value, bool):
                row[key] = float(value)
    return row
