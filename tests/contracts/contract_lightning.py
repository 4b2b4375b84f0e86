"""The same programs as Lightning trainings: `contract_lightning.py PROGRAM WORKDIR name=value ...`.

A record of a step is a batch that is trained on, and one with a score is what a validation logs. The
checkpoint is Lightning's: the program's own only says at which step that is.
"""

import itertools
import sys
from pathlib import Path

import contract_programs
import lightning
import torch
from contract_script import words
from torch.utils.data import DataLoader, IterableDataset

QUIET = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
EVERY = {"babbles": 20, "grows": 10**6}  # batches, in which a program evaluates otherwise than usually


class Batches(IterableDataset):
    """As many of `size` samples as are asked for."""

    def __init__(self, size):
        self.size = size

    def __iter__(self):
        return itertools.repeat(torch.ones(self.size, 1))


class Program(lightning.LightningModule):
    """Does in each step and in each validation what the program does up to its next record of that kind."""

    def __init__(self, records, workdir):
        super().__init__()
        self.net, self.records, self.state = torch.nn.Linear(1, 1), records, workdir / "state"

    def training_step(self, batch, index):
        while "score" in next(self.records):
            pass  # of a resumed program: Lightning has reported it
        return self.net(batch).mean()

    def validation_step(self, batch, index):
        self.log("score", next(self.records)["score"])

    def on_save_checkpoint(self, checkpoint):
        write_whole(self.state, str(checkpoint["global_step"]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def run(program, workdir, settings):
    records = getattr(contract_programs, program)(settings, workdir)
    own = dict.fromkeys(QUIET, False)
    every = EVERY.get(program, contract_programs.STEPS_PER_EVALUATION)
    trainer = lightning.Trainer(
        **own,
        accelerator="cpu",
        max_epochs=1,
        num_sanity_val_steps=0,
        val_check_interval=every,
        check_val_every_n_epoch=None,
    )
    size = settings.get("micro_batch_size", 1)
    trainer.fit(
        Program(records, workdir), DataLoader(Batches(size), None), DataLoader([torch.ones(1, 1)], None)
    )
    (workdir / "after").touch()


write_whole, contract_programs.write_whole = contract_programs.write_whole, lambda file, text: None
torch.set_default_dtype(torch.float64)  # of what is logged
_, program, workdir, *given = sys.argv
run(program, Path(workdir), {name: words(value) for name, value in (one.split("=", 1) for one in given)})
