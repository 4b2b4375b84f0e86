"""Writes sequences of symbols of very different lengths to Parquet files: `python make_data.py`.

Six hidden factors decide what a sequence is made of: three everywhere, one at its beginning, two in a rhythm.
Every symbol depends on the one before it, too. A model that finds the factors knows better what comes next.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SYMBOLS, FACTORS = 24, 6
SHORTEST, LONGEST, MEDIAN, SPREAD = 6, 48, 16, 0.6  # the logarithm of the length is normal
TRAINING, HELD_OUT = 5000, 500
_RHYTHMS = (4, 7)  # in symbols


def weights_of_factors(length: int) -> np.ndarray:
    """How much each factor counts at each place, (length, FACTORS)."""
    place = np.arange(length)
    always, fading = np.ones(length), 1.5 * np.exp(-place / MEDIAN)
    rhythms = [1.4 * np.sin(2 * np.pi * place / rhythm) for rhythm in _RHYTHMS]
    return np.stack([always, always, always, fading, *rhythms], axis=1)


def sequences(count: int, rng: np.random.Generator, language: np.random.Generator) -> list[np.ndarray]:
    """`count` sequences of symbols from 0 to SYMBOLS - 1, in the language that `language` draws."""
    usual = 0.5 * language.normal(size=SYMBOLS)
    meaning = 1.6 * language.normal(size=(FACTORS, SYMBOLS))
    after = 0.8 * language.normal(size=(SYMBOLS, SYMBOLS))
    lengths = np.exp(rng.normal(np.log(MEDIAN), SPREAD, count)).clip(SHORTEST, LONGEST).astype(int)
    factors = rng.normal(size=(count, FACTORS))
    drawn = np.zeros((count, LONGEST), dtype=np.uint8)
    symbol = rng.integers(SYMBOLS, size=count)
    for place, weights in enumerate(weights_of_factors(LONGEST)):
        scores = usual + (factors * weights) @ meaning + after[symbol] + rng.gumbel(size=(count, SYMBOLS))
        symbol = drawn[:, place] = scores.argmax(axis=1)  # Gumbel's noise makes it a draw from the softmax
    return [row[:length] for row, length in zip(drawn, lengths, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("data"), help="what is there is left as it is")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for part, (name, count) in enumerate({"train": TRAINING, "val": HELD_OUT}.items()):
        file = args.out / f"{name}.parquet"
        if not file.exists():
            rng = np.random.default_rng([args.seed, part])
            drawn = sequences(count, rng, np.random.default_rng(args.seed))
            column = pa.array([row.tolist() for row in drawn], pa.list_(pa.uint8()))
            pq.write_table(pa.table({"symbols": column}), file)


if __name__ == "__main__":
    main()
