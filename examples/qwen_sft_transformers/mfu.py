"""How much of what this machine can compute a training step makes use of (MFU), one measure after the other.

A share of the peak: the FLOPs that the model needs for a token, times tokens, over what the fastest matrix
product reaches in the same time. Recomputed activations and padding do not count. All times are CPU seconds
of one thread, so that other programs on the machine matter little. The makers of CPUs publish no peak.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
import train
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoTokenizer

DATA, LENGTH = Path("data"), 256
SIDE, ROUNDS = 1024, 20
STEPS = 10


@dataclass(frozen=True)
class Case:
    """What a step computes with."""

    name: str
    batch: int = 8
    checkpointing: bool = False
    attention: str = "sdpa"
    packing: bool = False
    bf16: bool = False


CASES = (
    Case("as train.py is started today", attention="eager", checkpointing=True),
    Case("without gradient checkpointing", attention="eager"),
    Case("and with sdpa"),
    Case("and packed, one row a step", batch=1, packing=True),
    Case("and in bf16", batch=1, packing=True, bf16=True),
    Case("and with eight rows a step", packing=True, bf16=True),
)


def cpu_s(work: Callable[[], object]) -> float:
    begun_s = time.process_time()
    work()
    return time.process_time() - begun_s


def peak_flops_per_s(dtype: torch.dtype) -> float:
    """Of the fastest product of two square matrices."""
    one, other = torch.randn(2, SIDE, SIDE).to(dtype)
    return 2 * SIDE**3 / min(cpu_s(lambda: one @ other) for _ in range(ROUNDS))


def flops_per_token(rows: list[train.Row], model: torch.nn.Module) -> float:
    """Of the forward and backward passes over `rows`, each by itself."""
    with FlopCounterMode(display=False) as counter:
        for row in rows:
            model(**{name: torch.tensor([values]) for name, values in row.items()}).loss.backward()
    return counter.get_total_flops() / sum(len(row["input_ids"]) for row in rows)


class Steps:
    """The training steps of a case."""

    def __init__(self, case: Case, rows: list[train.Row]) -> None:
        self.tokens = 0
        self._case, self._padding = case, TOKENIZER.pad_token_id
        self._rows = iter(train.packed(rows, LENGTH, self._padding) if case.packing else rows)
        self._collate = train.Collator(TOKENIZER, label_pad_token_id=train.NOT_LEARNT)
        self._model = train.network(train.ModelArguments(attn_implementation=case.attention), TOKENIZER)
        if case.checkpointing:
            self._model.activation_checkpointing_enable()
        self._model.train()
        self._optimizer = torch.optim.AdamW(self._model.parameters(), fused=True)

    def step(self) -> None:
        batch = self._collate(list(islice(self._rows, self._case.batch)))
        with torch.autocast("cpu", torch.bfloat16, enabled=self._case.bf16):
            loss = self._model(**batch).loss
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.tokens += int((batch["input_ids"] != self._padding).sum())


def tokens_per_s(case: Case, rows: list[train.Row]) -> float:
    steps = Steps(case, rows)
    steps.step()  # not measured: the first one allocates
    steps.tokens = 0
    took_s = sum(cpu_s(steps.step) for _ in range(STEPS))
    return steps.tokens / took_s


def main() -> None:
    torch.set_num_threads(1)
    rows = train.rows(train.read(DATA / "train.jsonl")[:2000], TOKENIZER, LENGTH)
    flops = flops_per_token(rows[:50], train.network(train.ModelArguments(), TOKENIZER))
    peaks = {bf16: peak_flops_per_s(torch.bfloat16 if bf16 else torch.float32) for bf16 in (False, True)}
    print(f"a token: {flops / 1e6:.2f} MFLOP")
    print(f"the peak: {peaks[False] / 1e9:.0f} GFLOP/s, in bf16 {peaks[True] / 1e9:.0f}")
    for case in CASES:
        rate = tokens_per_s(case, rows)
        print(f"{case.name:32} {rate:6.0f} tokens/s, MFU {rate * flops / peaks[case.bf16]:6.1%}", flush=True)


TOKENIZER = AutoTokenizer.from_pretrained(DATA / "tokenizer")

if __name__ == "__main__":
    main()
