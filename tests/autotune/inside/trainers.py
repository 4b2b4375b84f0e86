"""Minimal trainings with Transformers, TRL and Accelerate without knowledge of the tuner.

They run in their own processes, with the hook armed. Each prints something as JSON.
"""

import json
import os
import signal
import sys
import warnings
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, IterableDataset
from transformers import (
    Qwen2Config,
    Qwen2ForCausalLM,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

warnings.simplefilter("ignore")
ROWS = [{"input_ids": [1 + (i + j) % 60 for j in range(4 + i % 13)]} for i in range(45)]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(ROWS)


def model():
    config = Qwen2Config(
        vocab_size=64,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        pad_token_id=0,
    )
    return Qwen2ForCausalLM(config)


def padded(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.tensor([row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows])
    return {
        "input_ids": ids,
        "attention_mask": (ids > 0).long(),
        "labels": ids.masked_fill(ids == 0, -100),
    }


class Counted(TrainerCallback):
    """Counts the tokens of a trainer's steps independently."""

    def __init__(self):
        self.tokens, self.epochs = [], []

    def on_step_end(self, args, state, control, **_):
        self.tokens.append(state.num_input_tokens_seen)
        self.epochs.append(state.epoch)


def trainer(train=ROWS, evaluation=ROWS[:8], *, kind=Trainer, callbacks=(), **own):
    given = {
        "output_dir": "own",
        "per_device_train_batch_size": 4,
        "num_train_epochs": 2,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "include_num_input_tokens_seen": "non_padding",
        **own,
    }
    return kind(
        model=model(),
        args=TrainingArguments(**given),
        train_dataset=train,
        eval_dataset=evaluation,
        data_collator=padded,
        callbacks=list(callbacks),
    )


def trained(*args, **own):
    """Returns the total tokens up to every step."""
    counted = Counted()
    trainer(*args, callbacks=[counted], **own).train()
    return counted.tokens


def plain():
    return trained()


def evaluated():
    """Evaluates in the middle of epochs."""
    return trained(eval_strategy="steps", eval_steps=2)


class Ended(TrainerCallback):
    """Sends SIGTERM in the middle of the second step."""

    def on_pre_optimizer_step(self, args, state, control, **_):
        if state.global_step == 1:
            os.kill(os.getpid(), signal.SIGTERM)


def ended():
    trainer(callbacks=[Ended()]).train()


class Begun(TrainerCallback):
    """Records the step at which each training begins."""

    def __init__(self):
        self.steps = []

    def on_train_begin(self, args, state, control, **_):
        self.steps.append(state.global_step)


def twice():
    """Runs two trainings in one script."""
    begun = Begun()
    for _ in range(2):
        trainer(callbacks=[begun], max_steps=3).train()
    return begun.steps


def accumulated():
    return trained(gradient_accumulation_steps=3, eval_strategy="steps", eval_steps=1)


def workers():
    return trained(dataloader_num_workers=2, dataloader_persistent_workers=True, gradient_checkpointing=True)


def grouped():
    return trained(train_sampling_strategy="group_by_length")


def streamed():
    return trained(Stream(), max_steps=10)


def two_evaluations():
    """Evaluates two data sets after every epoch."""
    trainer(evaluation={"a": ROWS[:4], "b": ROWS[4:12]}, eval_strategy="epoch").train()
    return []


class Answering(Trainer):
    """Evaluates by itself, as trainers for question answering do."""

    def evaluate(self, *args, **kwargs):
        metrics = {"eval_f1": 0.5}
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


def answering():
    trainer(kind=Answering, eval_strategy="epoch").train()
    return []


def built():
    """Returns the files that are left after training a function's Trainer."""
    import autotune_transformers

    autotune_transformers.train(trainer(max_steps=1, output_dir="built"), {})
    return sorted(path.name for path in Path(os.environ["AUTOTUNE_WORKDIR"]).iterdir())


def arguments():
    """Returns the values of every kind of arguments, created in a script's own way."""
    from trl import SFTConfig

    own = {"output_dir": "own", "fp16": True, "use_cpu": True, "max_grad_norm": 0.5}
    made = [
        TrainingArguments(**own),
        Seq2SeqTrainingArguments(**own, predict_with_generate=True),
        SFTConfig(output_dir="own", max_length=512, use_cpu=True),
    ]
    names = json.loads(os.environ["NAMES"])
    return [{name: getattr(one, name, None) for name in names} for one in made]


def attention():
    return [model().config._attn_implementation]


def packed():
    """Returns the row lengths of TRL's trainer, and its resulting settings."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    counted = Counted()
    built = SFTTrainer(
        model=model(),
        args=SFTConfig(
            output_dir="own",
            max_steps=3,
            per_device_train_batch_size=2,
            bf16=False,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            include_num_input_tokens_seen="non_padding",
        ),
        train_dataset=Dataset.from_list(ROWS),
        processing_class=tokenizer(),
        callbacks=[counted],
    )
    built.train()
    return [built.args.packing, built.args.max_length, *counted.tokens]


def tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({"<pad>": 0, **{str(i): i for i in range(1, 64)}}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="63")


class NoScalar:
    """Like a tensor of another framework: without dimensions, and without `item`."""

    ndim = 0


def accelerated():
    """Trains in its own loop with Accelerate; returns the total samples up to every step."""
    accelerator = Accelerator(gradient_accumulation_steps=1, cpu=True)
    net = torch.nn.Linear(4, 1)
    data = [(torch.randn(4), torch.randn(1)) for _ in range(22)]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(data, 4, shuffle=True))
    seen, steps = 0, []
    for _ in range(2):
        for x, y in loader:
            with accelerator.accumulate(net):
                seen += len(x)
                loss = ((net(x) - y) ** 2).mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                steps.append(seen)
        accelerator.log({"eval_loss": loss.detach(), "note": "text", "samples": 3, "of_another": NoScalar()})
    return [accelerator.mixed_precision, *steps]


def tell(name):
    """Calls a function of this module and prints only its result."""
    out, sys.stdout = sys.stdout, sys.stderr
    said = globals()[name]()
    print(json.dumps(said), file=out, flush=True)
