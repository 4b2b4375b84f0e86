"""Writes instructions with their answers, as JSON lines, and a tokenizer of characters for them.

Every answer has to be computed from its instruction: sorted, reversed, counted or added up. An instruction
that is held out is none of those trained on, so what a model answers there it has learnt to compute.
"""

import argparse
import json
import random
import string
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHARACTERS = string.ascii_letters + string.digits + " .,:+"
PADDING, END, UNKNOWN = "<pad>", "<end>", "<unknown>"
LONGEST = 8  # items of a list: most are shorter

Example = dict[str, str]


def items(draw: random.Random, of: str) -> list[str]:
    """A list of characters `of` an alphabet; a short one more often than a long one."""
    return draw.choices(of, k=min(2 + int(draw.expovariate(0.3)), LONGEST))


def sort(draw: random.Random) -> Example:
    digits = items(draw, string.digits)
    return {"instruction": f"Sort: {' '.join(digits)}.", "answer": " ".join(sorted(digits))}


def reverse(draw: random.Random) -> Example:
    letters = items(draw, string.ascii_lowercase)
    return {"instruction": f"Reverse: {' '.join(letters)}.", "answer": " ".join(reversed(letters))}


def largest(draw: random.Random) -> Example:
    numbers = [str(draw.randrange(100)) for _ in items(draw, " ")]
    return {"instruction": f"Largest of: {', '.join(numbers)}.", "answer": max(numbers, key=int)}


def count(draw: random.Random) -> Example:
    letters = items(draw, "abc")
    wanted = draw.choice("abc")
    return {"instruction": f"Count {wanted} in: {''.join(letters)}.", "answer": str(letters.count(wanted))}


def add(draw: random.Random) -> Example:
    one, other = draw.randrange(100), draw.randrange(100)
    return {"instruction": f"Add: {one} + {other}.", "answer": str(one + other)}


TASKS: tuple[Callable[[random.Random], Example], ...] = (sort, reverse, largest, count, add)


def examples(seed: int) -> Iterator[Example]:
    """Examples without end, each task as often as any other, none twice."""
    draw, seen = random.Random(seed), set()
    while True:
        task = draw.choice(TASKS)
        example = {"task": task.__name__, **task(draw)}
        if example["instruction"] not in seen:
            seen.add(example["instruction"])
            yield example


def tokenizer() -> PreTrainedTokenizerFast:
    """One token for every character, one for padding and one for the end of an answer."""
    ids = {token: number for number, token in enumerate([PADDING, END, UNKNOWN, *CHARACTERS])}
    characters = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    characters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    characters.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=characters,
        pad_token=PADDING,
        eos_token=END,
        unk_token=UNKNOWN,
        model_input_names=["input_ids", "attention_mask"],
    )


def write(file: Path, found: Iterator[Example]) -> None:
    file.write_text("".join(f"{json.dumps(example)}\n" for example in found), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"), help="the directory to write into")
    parser.add_argument("--train", type=int, default=30_000, help="examples to train on")
    parser.add_argument("--held-out", type=int, default=500, help="examples to evaluate on")
    args = parser.parse_args()
    args.data.mkdir(parents=True, exist_ok=True)
    drawn = examples(seed=0)
    write(args.data / "held_out.jsonl", islice(drawn, args.held_out))
    write(args.data / "train.jsonl", islice(drawn, args.train))
    tokenizer().save_pretrained(args.data / "tokenizer")


if __name__ == "__main__":
    main()
