"""Fine-tunes a small Qwen2 to follow instructions, with the Trainer of Transformers.

It is an ordinary script: its arguments come from flags or from a JSON file, and it knows nothing of the
tuner.
"""

import json
import sys
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2Config,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

NOT_LEARNT = -100  # the label of a token that is not part of an answer
SHOWN = 8

Row = dict[str, list[int]]


@dataclass
class ModelArguments:
    hidden_size: int = field(default=192, metadata={"help": "width of the network"})
    layers: int = field(default=4, metadata={"help": "layers of the network"})
    attn_implementation: str = field(default="eager", metadata={"help": "eager or sdpa"})


@dataclass
class DataArguments:
    data: Path = field(default=Path("data"), metadata={"help": "the directory that make_data.py has written"})
    max_length: int = field(default=256, metadata={"help": "tokens of a row, whether packed or not"})
    packing: bool = field(default=False, metadata={"help": "several examples in a row of max_length tokens"})
    answered: int = field(
        default=500, metadata={"help": "held-out instructions to answer after the training"}
    )


def arguments() -> tuple[ModelArguments, DataArguments, TrainingArguments]:
    """Of the flags, or of the one JSON file that is given instead."""
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        return parser.parse_json_file(sys.argv[1], allow_extra_keys=True)
    return parser.parse_args_into_dataclasses()


def network(args: ModelArguments, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """A Qwen2 of 1.6 million parameters, by default, that has learnt nothing yet."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=args.hidden_size,
        intermediate_size=args.hidden_size * 8 // 3,
        num_hidden_layers=args.layers,
        num_attention_heads=args.hidden_size // 32,
        num_key_value_heads=args.hidden_size // 96,
        max_position_embeddings=1024,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=True,
        use_cache=False,
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation=args.attn_implementation)


def read(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def rows(examples: list[dict[str, str]], tokenizer: PreTrainedTokenizerBase, longest: int) -> list[Row]:
    """The tokens of each example; those of its answer are to be learnt."""
    asked = tokenizer([prompt(example) for example in examples])["input_ids"]
    answered = tokenizer([example["answer"] for example in examples])["input_ids"]
    return [
        {
            "input_ids": [*before, *after, tokenizer.eos_token_id][:longest],
            "labels": [*[NOT_LEARNT] * len(before), *after, tokenizer.eos_token_id][:longest],
        }
        for before, after in zip(asked, answered, strict=True)
    ]


def prompt(example: dict[str, str]) -> str:
    return f"{example['instruction']} "


def packed(rows: list[Row], length: int, padding: int) -> list[Row]:
    """Rows of `length` tokens with as many of `rows`, in their order, as fit; the rest is padding.

    The positions begin anew with every example. Without a mask the model knows by them what belongs together.
    """
    full = [_empty()]
    for one in rows:
        if len(full[-1]["input_ids"]) + len(one["input_ids"]) > length:
            full.append(_empty())
        for name, tokens in {**one, "position_ids": list(range(len(one["input_ids"])))}.items():
            full[-1][name] += tokens
    for one in full:
        rest = length - len(one["input_ids"])
        one["input_ids"] += [padding] * rest
        one["labels"] += [NOT_LEARNT] * rest
        one["position_ids"] += range(rest)
    return full


def _empty() -> Row:
    return {"input_ids": [], "labels": [], "position_ids": []}


class Collator(DataCollatorForSeq2Seq):
    """Pads rows to the longest of a batch; packed ones are as long as each other."""

    def __call__(self, rows: list[Row], return_tensors: str | None = None) -> Any:
        return (
            default_data_collator(rows)
            if "position_ids" in rows[0]
            else super().__call__(rows, return_tensors)
        )


@torch.no_grad()
def answers(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, asked: list[str]) -> list[str]:
    """What the model answers, the likeliest token at every step."""
    model.eval()
    batch = tokenizer(asked, padding=True, padding_side="left", return_tensors="pt").to(model.device)
    written = model.generate(**batch, max_new_tokens=32, do_sample=False, use_cache=True)
    return tokenizer.batch_decode(written[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)


def show(examples: list[dict[str, str]], answered: list[str]) -> None:
    """Prints the share of answers that are right to the letter, of every task, and some of them."""
    marked = sorted((e["task"], a == e["answer"]) for e, a in zip(examples, answered, strict=True))
    for task, marks in groupby(marked, key=lambda mark: mark[0]):
        right = [is_right for _, is_right in marks]
        print(f"{task:8} {sum(right) / len(right):6.1%} of {len(right)}")
    print(f"exact match: {sum(is_right for _, is_right in marked) / len(marked):.1%} of {len(marked)}")
    for example, answer in list(zip(examples, answered, strict=True))[:SHOWN]:
        print(f"  {example['instruction']} -> {answer} ({example['answer']})")


def main() -> None:
    model_args, data_args, args = arguments()
    set_seed(args.seed)
    tokenizer: Any = AutoTokenizer.from_pretrained(data_args.data / "tokenizer")
    model = network(model_args, tokenizer)
    held_out = read(data_args.data / "held_out.jsonl")
    train, evaluation = (
        rows(examples, tokenizer, data_args.max_length)
        for examples in (read(data_args.data / "train.jsonl"), held_out)
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=packed(train, data_args.max_length, tokenizer.pad_token_id)
        if data_args.packing
        else train,
        eval_dataset=evaluation,
        data_collator=Collator(tokenizer, label_pad_token_id=NOT_LEARNT),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir))
    asked = held_out[: data_args.answered]
    show(asked, answers(model, tokenizer, [prompt(example) for example in asked]))


if __name__ == "__main__":
    main()
