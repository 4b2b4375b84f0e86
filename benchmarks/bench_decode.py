"""Compares r2gen.decode with a decoder that recomputes the whole prefix at every word, in reports per second.

    python benchmarks/bench_decode.py [--cases 4x20 4x60 16x60 4x100] [--beams 3] [--whole]

A case is images x words. Both run on one thread over random weights of the published size and must write the
same words; CPU seconds are compared. The end token is made unlikely, so that every report has its full
length. With --whole both start from images: ours with folded batch norms, in channels_last and with all views
in one call, the other as in a training step.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from r2gen.config import Config
from r2gen.decode import search
from r2gen.model import EncoderDecoder, R2Gen
from r2gen.packing import Packing
from r2gen.visual import folded

PATCHES, VOCABULARY = 98, 760


@torch.inference_mode()
def plain_search(decoder: EncoderDecoder, encoded: Tensor, beams: int, length: int) -> Tensor:
    """R2Gen's own beam search: every step decodes every prefix from its start, without early stopping."""
    images = len(encoded)
    rows = encoded.repeat_interleave(beams, dim=0)
    ids = torch.zeros(images, beams, 1, dtype=torch.long)
    scores = torch.full((images, beams), -torch.inf)
    scores[:, 0] = 0.0  # at first all beams are identical
    best, best_scores = torch.zeros(images, length, dtype=torch.long), torch.full((images,), -torch.inf)
    for step in range(1, length + 1):
        log_probs = next_log_probs(decoder, rows, ids.flatten(0, 1)).view(images, beams, -1)
        scores, chosen = (scores[:, :, None] + log_probs).flatten(1).topk(beams)
        parents = (chosen // log_probs.size(2))[:, :, None].expand(-1, -1, step)
        ids = torch.cat((ids.gather(1, parents), (chosen % log_probs.size(2))[:, :, None]), dim=2)
        ended = (ids[:, :, -1] == 0) | (step == length)
        ended_scores, beam = scores.masked_fill(~ended, -torch.inf).max(dim=1)
        for image in (ended_scores > best_scores).nonzero().flatten():
            best[image, :step] = ids[image, beam[image], 1:]
            best_scores[image] = ended_scores[image]
        scores = torch.where(ended, scores - 1000.0, scores)
    return best


def next_log_probs(decoder: EncoderDecoder, encoded: Tensor, prefixes: Tensor) -> Tensor:
    """Returns log-probabilities [rows, classes] of the word after each of `prefixes` [rows, T]."""
    model, length = decoder.model, prefixes.size(1)
    packing = Packing.full(prefixes)
    embedded = packing.pack(model.tgt_embed(prefixes))
    memory = model.rm(embedded, model.rm.initial(len(prefixes)), packing.running)
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    decoded = packing.unpack(model.decoder(embedded, encoded, memory, mask, packing))
    return decoder.log_probs(decoded[:, -1])


def build(config: Config) -> R2Gen:
    model = R2Gen(config, VOCABULARY).eval()
    with torch.no_grad():
        model.encoder_decoder.logit.weight.mul_(4)  # avoids ties
        model.encoder_decoder.logit.bias[0] -= 20
    return model


def timed(run: Callable[[], Tensor]) -> tuple[Tensor, float]:
    """Returns the result of `run` and its CPU seconds."""
    start = time.process_time()
    return run(), time.process_time() - start


@torch.inference_mode()
def compare(model: R2Gen, images: int, length: int, beams: int, *, whole: bool) -> tuple[float, float]:
    """Returns the CPU seconds of both decoders; raises SystemExit if their words differ."""
    decoder = model.encoder_decoder
    if whole:
        images_in = torch.randn(images, 2, 3, 224, 224)

        def ours() -> Tensor:
            encoded = model.encode(images_in, folded(model.visual_extractor))
            return search(decoder, encoded, beam_size=beams, max_length=length)

        def plain() -> Tensor:
            patches = torch.cat([model.visual_extractor(view) for view in images_in.unbind(1)], dim=1)
            return plain_search(decoder, decoder.encode(patches), beams, length)

    else:
        encoded = decoder.encode(torch.randn(images, PATCHES, model.visual_extractor.features))

        def ours() -> Tensor:
            return search(decoder, encoded, beam_size=beams, max_length=length)

        def plain() -> Tensor:
            return plain_search(decoder, encoded, beams, length)

    fast, fast_s = timed(ours)
    slow, slow_s = timed(plain)
    if not torch.equal(fast, slow):
        raise SystemExit(f"{images} x {length}: the two decoders wrote different words")
    return fast_s, slow_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=["4x20", "4x60", "16x60", "4x100"])
    parser.add_argument("--beams", type=int, default=3)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = build(Config(data="none"))
    print("| images | words | full prefix, reports/s | incremental, reports/s | ratio | ms a word |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in options.cases:
        images, length = map(int, case.split("x"))
        fast_s, slow_s = compare(model, images, length, options.beams, whole=options.whole)
        rates = f"{images / slow_s:.2f} | {images / fast_s:.2f} | {slow_s / fast_s:.1f}x"
        print(f"| {images} | {length} | {rates} | {1e3 * fast_s / length:.1f} |", flush=True)


if __name__ == "__main__":
    main()
