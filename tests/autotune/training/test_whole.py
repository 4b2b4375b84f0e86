"""A whole training keeps the results of its attempts."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Status
from autotune.storage.layout import TrainingDir
from autotune.training import events
from autotune.training.events import Kind
from autotune.training.screen import TrainingScreen
from autotune.training.whole import GoOn, Whole
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport
from tests.faults.sessions import fill, small_disk

from .test_plan import PLAN
from .test_watch import reports

TRAINING = SimpleNamespace(
    whole_training=lambda *_: None,
    space=SimpleNamespace(training=SimpleNamespace(samples_per_epoch=None)),
    workload=SimpleNamespace(preload=()),
)
END = TrialReport(0, Phase.TRAINING, 1.0, Measurement(samples=9), outcome=Outcome(Status.COMPLETED))
HALVED = GoOn(
    0.0, "continues with batch 32 (4 x 8 accumulated)", {"micro_batch_size": 8, "accumulation_steps": 4}
)


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Trains with attempts that give these reports; returns the last report, the events and the output."""

    def call(*attempts, last=END, training=TRAINING):
        def run(whole, *_):
            for number, attempt in enumerate(attempts):
                if number:
                    whole._note_resumption(last, HALVED)
                whole._order(HALVED.changes if number else {})
                for report in attempt:
                    whole._hear(report)
            return last

        monkeypatch.setattr(Whole, "_attempts", run)
        place, said = TrainingDir(tmp_path), []
        shows = TrainingScreen(Console(force_terminal=False))
        shows.say = said.append
        whole = Whole(training, PLAN, place, screen=shows, follow=lambda _: None)
        whole.run(retries=3, is_stopping=lambda: False)
        return list(events.read(place.events_file)), said

    return call


def test_other_settings_have_a_speed_of_their_own(train):
    slower = reports(2000, begun=200_000, rate=lambda _: 80.0)
    found, _ = train(reports(2000), slower)
    assert [event.kind for event in found] == [Kind.BEGUN, Kind.HALVED, Kind.ENDED]


def smaller(told, size):
    """Returns the same records from a trainer that has halved its micro-batches."""
    for report in told:
        records = tuple({**record, "micro_batch_size": size} for record in report.records)
        yield replace(report, records=records)


def test_a_trainer_that_halves_its_micro_batches_has_another_speed_from_there_on(train):
    slower = reports(2000, begun=200_000, rate=lambda _: 80.0)
    found, _ = train([*reports(2000), *smaller(slower, 4)])
    assert [event.kind for event in found] == [Kind.BEGUN, Kind.HALVED, Kind.ENDED]
    assert found[1].text.startswith(
        "the trainer halved its micro-batch to batch 8 (2 x 4 accumulated) instead of batch 8"
    )


def test_batches_halved_before_a_resumption_are_not_reported(train, tmp_path):
    halved = [{"samples": 400 + 8 * n, "at_s": 2.0 + n, "micro_batch_size": 4} for n in range(2)]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in halved))
    found, _ = train(smaller(reports(2), 4))
    assert [event.kind for event in found] == [Kind.CONTINUED, Kind.ENDED]


def test_a_resumed_training_begins_where_its_records_end(train, tmp_path):
    records = [{"attempt": 1.0, "clock_s": 1.0}, {"samples": 400, "at_s": 2.0}, {"samples": 320, "at_s": 3.0}]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    found, _ = train(reports(1, begun=320))
    assert (found[0].kind, found[0].samples) == (Kind.CONTINUED, 400)


def test_an_interrupted_training_has_not_ended(train):
    """The next --resume continues it, and only its end has a verdict."""
    found, _ = train(reports(2), last=replace(END, outcome=Outcome(Status.INTERRUPTED)))
    assert [event.kind for event in found] == [Kind.BEGUN, Kind.STOPPED]


def test_a_full_disk_costs_only_events_and_the_plan(train, tmp_path):
    ordered = []
    ordering = {"whole_training": lambda config, _: ordered.append(config)}
    training = SimpleNamespace(**vars(TRAINING) | ordering)
    with small_disk(tmp_path, "64k") as disk:
        fill(disk)
        found, said = train(reports(2), reports(2), training=training)
    assert found == []
    assert ordered == [{"micro_batch_size": 8}, {"micro_batch_size": 8, "accumulation_steps": 4}]
    assert any(HALVED.text in line for line in said)
    assert "completed after 9 samples" in said[-1]
