"""The same programs within a Trainer of Transformers: `contract_trainer.py PROGRAM WORKDIR name=value ...`.

It knows nothing of the tuner. Its checkpoints are the Trainer's; `state` has the step of the last one.
"""

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import contract_programs
import torch
from contract_programs import STEPS_PER_EVALUATION, write_whole
from contract_script import words
from transformers import Trainer, TrainerCallback, TrainingArguments


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, x, labels=None):
        return {"loss": ((self.linear(x) - labels) ** 2).mean()}


class Rows(torch.utils.data.Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"x": torch.ones(1), "labels": torch.ones(1)}


class Contract(Trainer):
    """Every step is one of the program's; an evaluation takes as long as the program's, and has its score."""

    def __init__(self, steps, score, evaluation_s, **own):
        super().__init__(**own)
        self.steps, self.score, self.evaluation_s = steps, score, evaluation_s

    def training_step(self, *args, **kwargs):
        next(self.steps)
        return super().training_step(*args, **kwargs)

    def evaluate(self, *args, **kwargs):
        time.sleep(self.evaluation_s())
        return super().evaluate(*args, **kwargs)

    def log(self, logs, *args):
        if "eval_loss" in logs:
            logs["score"] = self.score
        super().log(logs, *args)


class Notes(TrainerCallback):
    """Notes the step of the checkpoint, and how long steps take by a clock of its own."""

    def __init__(self, workdir):
        self.workdir, self.own_s, self.begun_s = workdir, [], None

    def on_save(self, args, state, control, **_):
        write_whole(self.workdir / "state", str(state.global_step))

    def on_step_begin(self, args, state, control, **_):
        self.begun_s = self.begun_s or time.monotonic()

    def on_step_end(self, args, state, control, **_):
        now_s = time.monotonic()
        self.own_s.append(now_s - self.begun_s)
        self.begun_s = None if control.should_evaluate else now_s
        if control.should_evaluate:
            (self.workdir / "own").write_text(json.dumps(self.own_s))


def sleeping(seconds):
    for _ in itertools.count():
        time.sleep(seconds)
        yield


def main(program, workdir, settings):
    notes = Notes(workdir)
    evaluates, has_no_end = program == "evaluates", program in {"trains", "leaves_somebody"}
    if program == "leaves_somebody":
        left = subprocess.Popen(["sleep", "600"])
        (workdir / "left").write_text(str(left.pid))
    if has_no_end or evaluates:
        steps = sleeping(0.05 if evaluates else 0.004)
        (workdir / "pid").write_text(str(os.getpid()))
    else:
        steps = getattr(contract_programs, program)(settings, workdir)
    batch = settings["micro_batch_size"]
    trainer = Contract(
        steps,
        settings["seed"] / 1000 if has_no_end else 0.5,
        lambda: sum(notes.own_s) if evaluates else settings.get("evaluation_s", 0),
        model=Net(),
        args=TrainingArguments(
            output_dir="nowhere",
            per_device_train_batch_size=batch,
            max_steps={"evaluates": 40, "babbles": 20}.get(program, 10**6),
            eval_strategy="steps",
            eval_steps=STEPS_PER_EVALUATION,
            disable_tqdm=True,
            report_to="none",
            use_cpu=True,
        ),
        train_dataset=Rows(10**7),
        eval_dataset=Rows(1),
        callbacks=[notes],
    )
    try:
        trainer.train()
        (workdir / "after").touch()
    finally:
        (workdir / "closed").touch()


if __name__ == "__main__":
    program, workdir, *given = sys.argv[1:]
    settings = {name: words(value) for name, value in (one.split("=", 1) for one in given)}
    if program != "says_nothing":
        main(program, Path(workdir), settings)
