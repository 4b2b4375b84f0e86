"""What a token costs, and what this machine can do: the two figures that a share of the peak (MFU) needs.

FLOPs are counted once, of forward and backward passes over one example, without recomputed activations. The
peak is the fastest of some matrix products, because the makers of CPUs publish none.
"""

import time
from pathlib import Path

import torch
import train
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoTokenizer

SIDE, ROUNDS = 2048, 10


def flops_per_token(data: Path) -> tuple[float, float]:
    """Of the examples held out, on average: FLOPs of a token, and tokens of an example."""
    tokenizer = AutoTokenizer.from_pretrained(data / "tokenizer")
    model = train.network(train.ModelArguments(), tokenizer)
    rows = [train.row(example, tokenizer, 256) for example in train.read(data / "held_out.jsonl")]
    tokens = sum(len(row["input_ids"]) for row in rows)
    with FlopCounterMode(display=False) as counter:
        for row in rows:
            model(**{name: torch.tensor([values]) for name, values in row.items()}).loss.backward()
    return counter.get_total_flops() / tokens, tokens / len(rows)


def peak_flops_per_s(dtype: torch.dtype) -> float:
    """Of the fastest product of two square matrices."""
    one, other = torch.randn(2, SIDE, SIDE).to(dtype)
    return 2 * SIDE**3 / min(_seconds(one, other) for _ in range(ROUNDS))


def _seconds(one: torch.Tensor, other: torch.Tensor) -> float:
    begun_s = time.perf_counter()
    one @ other
    return time.perf_counter() - begun_s


def main() -> None:
    flops, tokens = flops_per_token(Path("data"))
    print(f"{flops / 1e6:.2f} MFLOP a token, {tokens:.1f} tokens an example")
    for dtype in (torch.float32, torch.bfloat16):
        print(f"{dtype}: {peak_flops_per_s(dtype) / 1e9:.0f} GFLOP/s")


if __name__ == "__main__":
    main()
