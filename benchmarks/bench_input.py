"""Measures the loader alone, in samples/s: without a cache, while filling the cache, and from the cache.

    python benchmarks/bench_input.py [--studies 192] [--size 512] [--workers 0 1 2] [--data DIR]

Draws X-rays of the given size unless DIR has a data set; loads batches of 16 studies, 2 views at 224 pixels.
The epoch that fills the cache includes decoding; ratios are to decoding in every epoch with as many workers.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from r2gen import synthetic
from r2gen.annotation import load_annotation
from r2gen.config import Config, parse
from r2gen.data import ReportDataset, TrainingSampler, loader
from r2gen.tokenizer import Tokenizer

EPOCHS = 3


def samples_per_s(config: Config, epochs: int) -> float:
    """Returns studies per second over `epochs` epochs, including the construction of the dataset."""
    studies = load_annotation(config).splits["train"]
    tokenizer = Tokenizer.from_reports((s.report for s in studies), config.dataset, config.min_word_count)
    begun = time.perf_counter()
    dataset = ReportDataset(studies, tokenizer, config, training=True)
    sampler = TrainingSampler(len(studies), config)
    batches = loader(dataset, sampler, config, persistent=True)
    for epoch in range(1, epochs + 1):
        sampler.epoch = epoch
        loaded = sum(len(batch.studies) for batch in batches)
        if loaded != len(studies):
            raise SystemExit(f"{loaded} of {len(studies)} studies were loaded")
    return epochs * len(studies) / (time.perf_counter() - begun)


def rates(base: dict[str, object], cache: Path) -> tuple[float, float, float]:
    """Returns the rates without a cache, while filling an empty cache, and from the full cache."""
    os.environ["XDG_CACHE_HOME"] = str(cache)
    decoded = samples_per_s(parse({**base, "image_cache_gib": 0}), 1)
    cold = samples_per_s(parse(base), 1)
    return decoded, cold, samples_per_s(parse(base), EPOCHS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=192)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    print("| workers | decoding, samples/s | filling the cache | from the cache | ratio |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as place:
        counts = {"train": options.studies, "val": 1, "test": 1}
        data = options.data or synthetic.make(Path(place, "data"), counts, seed=0, size=options.size)
        for workers in options.workers:
            base = {"data": data, "num_workers": workers}
            decoded, cold, kept = rates(base, Path(place, f"cache-{workers}"))
            print(
                f"| {workers} | {decoded:.0f} | {cold / decoded:.2f}x | {kept:.0f} | {kept / decoded:.1f}x |",
                flush=True,
            )


if __name__ == "__main__":
    main()
