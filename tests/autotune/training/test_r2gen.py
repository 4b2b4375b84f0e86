"""What a whole training does about a fault is what the trainer can go on with."""

import json
import os
from pathlib import Path

import pytest
import yaml

from autotune.__main__ import main
from autotune.storage.trial_dir import TrainingDir
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
}


@pytest.mark.parametrize(
    ("by_itself", "said"),
    [
        (False, "goes on with micro-batches of 2x2 instead of 4x1"),
        (True, "the trainer halved its micro-batch: 2x2 instead of 4x1"),
    ],
)
def test_out_of_memory_it_goes_on_with_half_the_micro_batch(tmp_path, monkeypatch, capsys, by_itself, said):
    """In the middle of an epoch of ten studies: each of them is trained with once."""
    here = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    data = synthetic.make(tmp_path, {"train": 10, "val": 4, "test": 3}, 0, 80)
    space = {
        "workload": "short_of_memory:fit",
        "baseline": {**SMALL, "data": str(data), "checkpoint_every_steps": 1, "halve_on_oom": by_itself},
        "knobs": {"micro_batch_size": {"choice": [2, 4]}},
        "objective": {"quality": "bleu_4"},
        "training": {"samples": 20},
    }
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(space))
    place = TrainingDir(tmp_path / "t")
    command = ["train", str(tmp_path / "space.yaml"), "--workdir", str(tmp_path / "t"), "--wandb", "off"]

    assert main(command) == 0

    assert said in capsys.readouterr().out
    assert [event.kind for event in events.read(place.events_file)] == [Kind.BEGUN, Kind.HALVED, Kind.ENDED]
    records = map(json.loads, (tmp_path / "t" / "records.jsonl").read_text().splitlines())
    assert [r["samples"] for r in records if "train_loss" in r] == [4, 8, 10, 14, 18, 20]
    state = checkpoint.load(place.work / "last.pt")
    size = state["micro_batch_size"] if by_itself else state["config"]["micro_batch_size"]
    assert (state["samples"], size) == (20, 2)
