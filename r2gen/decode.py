"""Decoding: incremental beam search, all images of a batch and all beams of an image at once.

Keys, values and the memory of each word are cached, so a step costs one word whatever the length. The beams
of an image are rows of one query: they share the image's keys and values, and one cache in which a mask shows
each beam its own words, so that choosing beams moves no cached tensor.
"""

from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from r2gen.errors import InputError
from r2gen.layers import KeysValues
from r2gen.model import DecoderLayer, EncoderDecoder

_ENDED = 1000.0  # subtracted from a finished beam's score, which ranks it below every running one
_TRIGRAM_PENALTY = 0.693 * 2.0  # off the log-probability, for each earlier occurrence


@torch.no_grad()
def search(
    decoder: EncoderDecoder, encoded: Tensor, *, beam_size: int, max_length: int, block_trigrams: bool = False
) -> Tensor:
    """Returns int64 ids [B, max_length] of the best reports that a beam search finds, padded with 0.

    `encoded` [B, P, d_model] is the output of `R2Gen.encode`. `beam_size` 1 is greedy. `block_trigrams` makes
    repeated trigrams less likely. `decoder` must be in evaluation mode.
    """
    classes = decoder.logit.out_features
    if beam_size > classes:
        raise InputError(f"beam_size must not exceed the {classes} words of the vocabulary, got {beam_size}")
    state = _State(decoder, encoded, beam_size, max_length)
    best = _Finished.nothing(len(encoded), max_length, encoded.device)
    ids = torch.zeros(len(encoded), 1, 1, dtype=torch.long, device=encoded.device)
    scores = torch.zeros(len(encoded), 1, device=encoded.device)
    for length in range(1, max_length + 1):
        log_probs = state.step(ids[:, :, -1])
        if block_trigrams:
            log_probs = log_probs - _trigram_penalty(ids[:, :, 1:], classes)
        ids, scores, parents = _extend(ids, scores, log_probs, beam_size)
        ended = (ids[:, :, -1] == 0) | (length == max_length)
        best.record(ids[:, :, 1:], scores, ended)
        scores = torch.where(ended, scores - _ENDED, scores)
        # Log-probabilities are never positive: a beam that is behind now can only fall further behind.
        open_images = best.could_improve(scores)
        if not len(open_images):
            break
        state.select(parents, open_images)
        best.select(open_images)
        ids, scores = ids[open_images], scores[open_images]
    return best.ids


@torch.no_grad()
def draw(
    decoder: EncoderDecoder, encoded: Tensor, *, max_length: int, block_trigrams: bool = False
) -> Tensor:
    """Samples int64 ids [B, max_length] of reports, padded with 0.

    As in the original, every image draws until the last one has ended, so that equal seeds draw equal words.
    """
    state = _State(decoder, encoded, 1, max_length)
    ids = torch.zeros(len(encoded), 1, 1 + max_length, dtype=torch.long, device=encoded.device)
    ended = torch.zeros(len(encoded), 1, dtype=torch.bool, device=encoded.device)
    for length in range(max_length):
        log_probs = state.step(ids[:, :, length])
        if block_trigrams:
            log_probs = log_probs - _trigram_penalty(ids[:, :, 1 : length + 1], log_probs.size(2))
        chances = log_probs[:, 0].exp().nan_to_num(nan=1)  # a model that outputs NaN writes anything
        words = torch.multinomial(chances, 1).masked_fill(ended, 0)
        ids[:, :, length + 1] = words
        ended |= words == 0
        if ended.all():
            break
    return ids[:, 0, 1:]


def _extend(ids: Tensor, scores: Tensor, log_probs: Tensor, beams: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns each image's best `beams` continuations: ids [B, W, T + 1], scores and parent beams [B, W]."""
    candidates = (scores[:, :, None] + log_probs).flatten(1)
    scores, chosen = candidates.topk(beams)
    parents = chosen // log_probs.size(2)
    return torch.cat((_take(ids, parents), (chosen % log_probs.size(2))[:, :, None]), dim=2), scores, parents


def _trigram_penalty(words: Tensor, classes: int) -> Tensor:
    """Returns the penalty [B, W, classes] on next words of `words` [B, W, T] that would repeat a trigram."""
    penalty = torch.zeros(*words.shape[:2], classes, device=words.device)
    if words.size(2) < 3:
        return penalty
    repeats = (words[:, :, :-2] == words[:, :, -2:-1]) & (words[:, :, 1:-1] == words[:, :, -1:])
    return penalty.scatter_add_(2, words[:, :, 2:], repeats * _TRIGRAM_PENALTY)


@dataclass
class _Finished:
    """The best finished report of every image, and the images that are still being searched."""

    ids: Tensor  # [images, max_length]
    scores: Tensor  # [images]
    images: Tensor  # [B], those still searched

    @classmethod
    def nothing(cls, images: int, max_length: int, device: torch.device) -> "_Finished":
        ids = torch.zeros(images, max_length, dtype=torch.long, device=device)
        return cls(ids, torch.full((images,), -torch.inf, device=device), torch.arange(images, device=device))

    def record(self, words: Tensor, scores: Tensor, ended: Tensor) -> None:
        """Keeps the best ended beam of each image if it beats the best so far."""
        # No boolean indexing: it synchronises, to learn from the GPU how many are true.
        length, held = words.size(2), self.scores[self.images]
        best, beam = scores.masked_fill(~ended, -torch.inf).max(dim=1)
        better = best > held
        report = words.gather(1, beam[:, None, None].expand(-1, 1, length)).squeeze(1)
        ids = torch.where(better[:, None], report, self.ids[self.images, :length])
        self.scores[self.images] = torch.where(better, best, held)
        self.ids[self.images, :length] = ids

    def could_improve(self, scores: Tensor) -> Tensor:
        """Returns the positions in the batch of images whose best running score beats the finished one."""
        return (scores.amax(dim=1) > self.scores[self.images]).nonzero().squeeze(1)

    def select(self, positions: Tensor) -> None:
        self.images = self.images[positions]


class _Cache:
    """One layer's keys and values for all words of all beams of an image."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._length = 0
        self._held: list[Tensor] = []  # keys and values, each [B, heads, capacity, d_k]

    def extend(self, new: KeysValues) -> KeysValues:
        """Appends `new` [B, heads, W, d_k] and returns everything cached."""
        if not self._held:
            self._held = [part.new_empty(*part.shape[:2], self._capacity, part.size(3)) for part in new]
        start, self._length = self._length, self._length + new[0].size(2)
        for held, part in zip(self._held, new, strict=True):
            held[:, :, start : self._length] = part
        keys, values = self._held
        return keys[:, :, : self._length], values[:, :, : self._length]

    def select(self, images: Tensor) -> None:
        self._held = [held[images] for held in self._held]


class _State:
    """The decoder's state between words, for every beam."""

    def __init__(self, decoder: EncoderDecoder, encoded: Tensor, beams: int, max_length: int) -> None:
        self._decoder = decoder
        self._layers = cast("list[DecoderLayer]", list(decoder.model.decoder.layers))
        self._sources = [layer.src_attn.keys_values(encoded) for layer in self._layers]
        self._caches = [_Cache(1 + beams * (max_length - 1)) for _ in self._layers]
        self._memory = decoder.model.rm.initial(len(encoded)).flatten(1)[:, None]  # [B, W, slots * d]
        self._ancestors = torch.ones(len(encoded), 1, 0, dtype=torch.bool, device=encoded.device)
        self._length = 0

    def step(self, ids: Tensor) -> Tensor:
        """Returns log-probabilities [B, W, classes] of the word after `ids` [B, W], each beam's last word."""
        embed, locate = self._decoder.model.tgt_embed
        x = locate(embed(ids), self._length)
        self._length += 1
        self._memory = self._remember(x)
        own = torch.eye(ids.size(1), dtype=torch.bool, device=ids.device).expand(len(ids), -1, -1)
        self._ancestors = torch.cat((self._ancestors, own), dim=2)
        mask = self._ancestors[:, None]
        for layer, source, cache in zip(self._layers, self._sources, self._caches, strict=True):
            keep = partial(_kept, layer, cache)
            x = layer.attend(x, source, self._memory, mask, keep)
        return self._decoder.log_probs(self._decoder.model.decoder.norm(x))

    def _remember(self, x: Tensor) -> Tensor:
        rm, rows = self._decoder.model.rm, x.size(0) * x.size(1)
        memory = self._memory.reshape(rows, rm.slots, -1)
        out: Tensor = rm(x.reshape(rows, -1), memory, torch.tensor([rows]))
        return out.reshape(*x.shape[:2], -1)

    def select(self, parents: Tensor, images: Tensor) -> None:
        """Continues the beams `parents` [B, W] of the images at the positions `images`."""
        self._memory = _take(self._memory, parents)[images]
        self._ancestors = _take(self._ancestors, parents)[images]
        if len(images) < len(parents):
            self._sources = [(keys[images], values[images]) for keys, values in self._sources]
            for cache in self._caches:
                cache.select(images)


def _kept(layer: DecoderLayer, cache: _Cache, x: Tensor) -> KeysValues:
    return cache.extend(layer.self_attn.keys_values(x))


def _take(rows: Tensor, parents: Tensor) -> Tensor:
    return rows.gather(1, parents[:, :, None].expand(-1, -1, rows.size(2)))
