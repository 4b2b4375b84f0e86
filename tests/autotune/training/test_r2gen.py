"""A training of R2Gen recovers from its faults."""

import json
import os
from pathlib import Path

import pytest
import yaml

from autotune.__main__ import main
from autotune.storage.layout import TrainingDir
from autotune.training import events
from autotune.training.events import Kind
from r2gen import checkpoint, synthetic
from tests import tiny_r2gen

SMALL = {
    **tiny_r2gen.MODEL,
    "beam_size": 1,
    "micro_batch_size": 4,
    "accumulation_steps": 1,
    "epochs": 2,
    "num_workers": 0,
    "meteor": False,
    "checkpoint_every_steps": 1,
}


@pytest.fixture
def train(tmp_path, monkeypatch, _without_compiler):
    """Trains two epochs of ten studies with a workload of this directory; returns directory and exit code."""
    here = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    def call(workload, **settings):
        data = synthetic.make(tmp_path, {"train": 10, "val": 4, "test": 3}, 0, 80)
        space = {
            "workload": workload,
            "baseline": {**SMALL, "data": str(data), **settings},
            "knobs": {"micro_batch_size": {"choice": [2, 4]}},
            "objective": {"quality": "bleu_4"},
            "training": {"samples": 20},
        }
        (tmp_path / "space.yaml").write_text(yaml.safe_dump(space))
        command = ["train", str(tmp_path / "space.yaml"), "--workdir", str(tmp_path / "t"), "--wandb", "off"]
        return TrainingDir(tmp_path / "t"), main(command)

    return call


def happened(place):
    return [event.kind for event in events.read(place.events_file)]


def steps(place):
    """Checks the samples at each step: every study is used once in an epoch."""
    records = map(json.loads, place.records_file.read_text().splitlines())
    return [record["samples"] for record in records if "train_loss" in record]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by_itself", "said"),
    [
        (False, "continues with batch 4 (2 x 2 accumulated) instead of batch 4"),
        (True, "the trainer halved its micro-batch to batch 4 (2 x 2 accumulated) instead of batch 4"),
    ],
)
def test_out_of_memory_resumes_with_half_the_micro_batch(train, capsys, by_itself, said):
    """The trainer runs out of memory in the middle of an epoch."""
    place, code = train("short_of_memory:fit", halve_on_oom=by_itself)
    assert code == 0
    assert said in capsys.readouterr().out
    assert happened(place) == [Kind.BEGUN, Kind.HALVED, Kind.ENDED]
    assert steps(place) == [4, 8, 10, 14, 18, 20]
    state = checkpoint.load(place.work / "last.pt")
    size = state["micro_batch_size"] if by_itself else state["config"]["micro_batch_size"]
    assert (state["samples"], size) == (20, 2)


@pytest.mark.long
def test_a_training_with_a_hanging_loader_is_resumed(train, capsys):
    """The trainer ends the loader, and its checkpoint has everything trained before."""
    place, code = train("hanging_loader:fit", num_workers=1, loader_timeout_s=5)
    assert code == 0
    assert (
        "LoaderError: loader_timeout_s 5: the loader's processes delivered no batch"
        in capsys.readouterr().out
    )
    first, *between, last = happened(place)
    assert (first, set(between), last) == (Kind.BEGUN, {Kind.RETRIED}, Kind.ENDED)
    assert steps(place) == [4, 8, 10, 14, 18, 20]
