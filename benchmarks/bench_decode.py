"""How much faster r2gen.decode writes reports than a decoder that reads its whole prefix again at every word.

    python benchmarks/bench_decode.py [--batch 16] [--length 60] [--beams 3]

Runs both on one thread, over random weights of the published size, requires the same words of both, and
prints CPU seconds. The end of a report is made unlikely, so that every report has its full length.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from r2gen.config import Config
from r2gen.decode import search
from r2gen.model import EncoderDecoder
from r2gen.packing import Packing

PATCHES, FEATURES, VOCABULARY = 98, 2048, 760


@torch.inference_mode()
def plain_search(decoder: EncoderDecoder, encoded: Tensor, beams: int, length: int) -> Tensor:
    """R2Gen's own beam search: every step decodes every prefix from its start, and all steps are run."""
    images = len(encoded)
    rows = encoded.repeat_interleave(beams, dim=0)
    ids = torch.zeros(images, beams, 1, dtype=torch.long)
    scores = torch.full((images, beams), -torch.inf)
    scores[:, 0] = 0.0  # at first all beams are the same one
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
    """Log-probabilities [rows, classes] of the word after each of `prefixes` [rows, T]."""
    model, length = decoder.model, prefixes.size(1)
    packing = Packing.whole(prefixes)
    embedded = packing.pack(model.tgt_embed(prefixes))
    memory = model.rm(embedded, model.rm.initial(len(prefixes)), packing.running)
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    decoded = packing.unpack(model.decoder(embedded, encoded, memory, mask, packing))
    return decoder.log_probs(decoded[:, -1])


def build() -> EncoderDecoder:
    decoder = EncoderDecoder(Config(data="none"), FEATURES, VOCABULARY).eval()
    with torch.no_grad():
        decoder.logit.weight.mul_(4)  # away from ties
        decoder.logit.bias[0] -= 20
    return decoder


def timed(run: Callable[[], Tensor]) -> tuple[Tensor, float]:
    """What `run` returns, and its CPU seconds."""
    start = time.process_time()
    return run(), time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=60)
    parser.add_argument("--beams", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    decoder = build()
    with torch.inference_mode():
        encoded = decoder.encode(torch.randn(options.batch, PATCHES, FEATURES))
    fast, fast_s = timed(lambda: search(decoder, encoded, beam_size=options.beams, max_length=options.length))
    print(f"incremental: {fast_s:.2f} s", flush=True)
    plain, plain_s = timed(lambda: plain_search(decoder, encoded, options.beams, options.length))
    print(f"full prefix: {plain_s:.2f} s, {plain_s / fast_s:.1f} times as long")
    if not torch.equal(fast, plain):
        raise SystemExit("the two decoders wrote different words")


if __name__ == "__main__":
    main()
