"""The log of a training's events."""

import json

from autotune.training import events
from autotune.training.events import Kind, TrainingEvent

EVENTS = [
    TrainingEvent(10.5, 0, Kind.BEGUN, "training"),
    TrainingEvent(20.0, 400, Kind.HALVED, "batch 8 (2 x 4 accumulated) instead of batch 8"),
]


def test_events_are_read_in_the_order_in_which_they_came(tmp_path):
    file = tmp_path / "events.jsonl"
    for event in EVENTS:
        events.write(file, event)
    assert list(events.read(file)) == EVENTS


def test_corrupt_lines_are_skipped(tmp_path):
    file = tmp_path / "events.jsonl"
    events.write(file, EVENTS[0])
    spoilt = [[], {"kind": "begun"}, {"kind": "unheard of", "at": 1, "samples": 2}, {"kind": [], "at": 1}]
    with file.open("a") as stream:
        stream.write("".join(json.dumps(line) + "\n" for line in spoilt) + '{"at": 3.0, "sam')
    events.write(file, EVENTS[1])
    assert list(events.read(file)) == EVENTS


def test_without_a_file_there_are_none(tmp_path):
    assert list(events.read(tmp_path / "events.jsonl")) == []
