"""The library of every format reads it and trains a few steps with it, in a forked process."""

import json
import os

import pytest

from autotune.export import formats
from autotune.workloads.base import Workload
from tests import forked

pytestmark = pytest.mark.slow  # importing a framework takes seconds

QUIET = "import sys, json, warnings; warnings.simplefilter('ignore')\n"
LIGHTNING = """
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel

class Data(BoringDataModule):
    def __init__(self, batch_size: int = 1, num_workers: int = 0):
        super().__init__()
        self.batch_size = batch_size

cli = LightningCLI(BoringModel, Data, args=["fit", "--config", sys.argv[1]], save_config_callback=None)
t = cli.trainer
said = {"steps": t.global_step, "precision": t.precision, "accumulates": t.accumulate_grad_batches}
said |= {"clip": t.gradient_clip_val, "seed": cli.config.fit.seed_everything}
print(json.dumps({**said, "batch": cli.datamodule.batch_size}))
"""
TRANSFORMERS = """
import torch
from transformers import HfArgumentParser, Trainer, TrainingArguments

[arguments] = HfArgumentParser(TrainingArguments).parse_json_file(sys.argv[1], allow_extra_keys=True)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def gradient_checkpointing_enable(self, **_):
        pass
    def forward(self, x):
        return {"loss": self.layer(x).pow(2).mean()}

trainer = Trainer(Model(), arguments, train_dataset=[{"x": [1.0, 2.0]}] * 64, data_collator=lambda rows: {
    "x": torch.tensor([row["x"] for row in rows])})
trainer.train()
a = arguments
said = {"steps": trainer.state.global_step, "batch": a.train_batch_size, "bf16": a.bf16}
said |= {"lr": a.learning_rate, "accumulates": a.gradient_accumulation_steps, "clip": a.max_grad_norm}
print(json.dumps({**said, "checkpointing": a.gradient_checkpointing}))
"""


def read(place, name, winner, script):
    """Writes the file of a format, and returns the output of a script that reads it."""
    file = place / f"best.{formats.FORMATS[name].suffix}"
    file.write_text(formats.FORMATS[name].render(winner).text)
    done = forked.run((file,), place, os.environ, script=QUIET + script, warm=name)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_lightnings_cli_trains_with_its_format(winner, tmp_path):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = {"max_steps": 3, "limit_val_batches": 1, "accelerator": "cpu", "devices": 1, **quiet}
    assert read(tmp_path, "lightning", winner(trainer=trainer), LIGHTNING) == {
        "steps": 3,
        "precision": "bf16-mixed",
        "accumulates": 2,
        "clip": 1.0,
        "seed": 3,
        "batch": 32,
    }


def test_transformers_trains_with_its_format(winner, tmp_path):
    trainer = {"max_steps": 3, "use_cpu": True, "report_to": "none", "save_strategy": "no"}
    found = winner(workload=Workload("transformers"), trainer=trainer, data={"batch_size": 4})
    assert read(tmp_path, "transformers", found, TRANSFORMERS) == {
        "steps": 3,
        "batch": 4,
        "bf16": True,
        "lr": 2e-4,
        "accumulates": 2,
        "checkpointing": True,
        "clip": 1.0,
    }
