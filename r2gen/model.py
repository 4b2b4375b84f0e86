"""R2Gen: a memory-driven transformer from image patches to words (cuhksz-nlp/R2Gen, arXiv:2010.16056).

Parameters have the names of the published checkpoints.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import torch
import torch.nn.functional as F  # noqa: N812 - the usual alias
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from r2gen.config import Config
from r2gen.layers import Attention, Embeddings, FeedForward, KeysValues, LayerNorm, PositionalEncoding
from r2gen.memory import ConditionalLayerNorm, RelationalMemory
from r2gen.packing import Packing
from r2gen.visual import VisualExtractor


class Sublayer(nn.Module):
    """A pre-norm residual connection: x + dropout(run(norm(x, ...)))."""

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, run: Callable[[Tensor], Tensor], *memory: Tensor) -> Tensor:
        out: Tensor = x + self.dropout(run(self.norm(x, *memory)))
        return out


class EncoderLayer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_attn = Attention(config.d_model, config.num_heads)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.dropout)
        norms = (LayerNorm(config.d_model) for _ in range(2))
        self.sublayer = nn.ModuleList(Sublayer(norm, config.dropout) for norm in norms)

    def forward(self, x: Tensor) -> Tensor:
        x = self.sublayer[0](x, lambda y: self.self_attn(y, self.self_attn.keys_values(y)))
        out: Tensor = self.sublayer[1](x, self.feed_forward)
        return out


class DecoderLayer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_attn = Attention(config.d_model, config.num_heads)
        self.src_attn = Attention(config.d_model, config.num_heads)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.dropout)
        norms = (ConditionalLayerNorm(config.d_model, config.rm_num_slots) for _ in range(3))
        self.sublayer = nn.ModuleList(Sublayer(norm, config.dropout) for norm in norms)

    def forward(self, x: Tensor, encoded: Tensor, memory: Tensor, mask: Tensor, packing: Packing) -> Tensor:
        """Returns the layer's output for packed `x` [N, d], for all words at once (teacher forcing)."""
        source = self.src_attn.keys_values(encoded)
        own = partial(self.self_attn.keys_values, packing=packing)
        return self.attend(x, source, memory, mask, own, packing)

    def attend(  # noqa: PLR0917 - everything that a word depends on
        self,
        x: Tensor,
        source: KeysValues,
        memory: Tensor,
        mask: Tensor,
        own: Callable[[Tensor], KeysValues],
        packing: Packing | None = None,
    ) -> Tensor:
        """Applies the layer given the image's keys and values; `own` computes the words' keys and values."""
        x = self.sublayer[0](x, lambda y: self.self_attn(y, own(y), mask, packing), memory)
        x = self.sublayer[1](x, lambda y: self.src_attn(y, source, None, packing), memory)
        out: Tensor = self.sublayer[2](x, self.feed_forward, memory)
        return out


class _Stack(nn.Module):
    def __init__(self, layers: list[nn.Module], d_model: int, *, activation_checkpointing: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = LayerNorm(d_model)
        self.activation_checkpointing = activation_checkpointing

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        for layer in self.layers:
            x = self._run(layer, x, *context)
        out: Tensor = self.norm(x)
        return out

    def _run(self, layer: nn.Module, *inputs: Any) -> Any:
        if self.activation_checkpointing and self.training and torch.is_grad_enabled():
            return checkpoint(layer, *inputs, use_reentrant=False)
        return layer(*inputs)


class Transformer(nn.Module):
    def __init__(self, config: Config, classes: int) -> None:
        super().__init__()
        d_model = config.d_model
        # Recomputed dropout needs the random numbers of the first time, which a CUDA graph cannot restore.
        saving = config.activation_checkpointing and config.compile == "off"
        encoders: list[nn.Module] = [EncoderLayer(config) for _ in range(config.num_layers)]
        decoders: list[nn.Module] = [DecoderLayer(config) for _ in range(config.num_layers)]
        self.encoder = _Stack(encoders, d_model, activation_checkpointing=saving)
        self.decoder = _Stack(decoders, d_model, activation_checkpointing=saving)
        self.tgt_embed = nn.Sequential(Embeddings(d_model, classes), PositionalEncoding(d_model))
        self.rm = RelationalMemory(d_model, config.rm_num_slots, config.rm_num_heads)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)


class EncoderDecoder(nn.Module):
    """Everything after the visual extractor: from patch features [B, P, features] to words."""

    def __init__(self, config: Config, features: int, vocab_size: int) -> None:
        super().__init__()
        classes = vocab_size + 1
        self.att_embed = nn.Sequential(
            nn.Linear(features, config.d_model), nn.ReLU(), nn.Dropout(config.drop_prob_lm)
        )
        self.model = Transformer(config, classes)
        self.logit = nn.Linear(config.d_model, classes)
        self.dropout = nn.Dropout(config.dropout)

    def encode(self, patches: Tensor) -> Tensor:
        """Returns the encoder's output, [B, P, d_model]."""
        # The residual stream stays in the parameters' precision under autocast.
        embedded = self.att_embed(patches).to(self.logit.weight.dtype)
        out: Tensor = self.model.encoder(embedded)
        return out

    def forward(self, patches: Tensor, targets: Tensor, packing: Packing | None = None) -> Tensor:
        return self.teach(self.encode(patches), targets, packing)

    def teach(self, encoded: Tensor, targets: Tensor, packing: Packing | None = None) -> Tensor:
        """Returns log-probabilities [B, T - 1, classes] of the next words, given the `targets` [B, T].

        `packing` describes the first T - 1 positions of the targets. Positions that it leaves out are 0.
        """
        words = targets[:, :-1]
        packing = packing or Packing.full(words)
        embedded = packing.pack(self.model.tgt_embed(words))
        # Two draws of the dropout, as in the original: one for the memory, one for the decoder.
        memory = self.model.rm(self.dropout(embedded), self.model.rm.initial(len(words)), packing.running)
        mask = _training_mask(words)
        decoded = self.model.decoder(self.dropout(embedded), encoded, memory, mask, packing)
        return packing.unpack(self.log_probs(decoded))

    def log_probs(self, decoded: Tensor) -> Tensor:
        logits = self.logit(decoded)
        return F.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)


class R2Gen(nn.Module):
    """The whole model. Images are [B, views, 3, S, S]; ids are int64; 0 begins, ends and pads a report.

    With a frozen extractor, images may be given as its features, [B, views * patches, features].
    """

    def __init__(self, config: Config, vocab_size: int) -> None:
        super().__init__()
        self.visual_extractor = VisualExtractor(
            config.visual_extractor, activation_checkpointing=config.activation_checkpointing
        )
        self.encoder_decoder = EncoderDecoder(config, self.visual_extractor.features, vocab_size)
        self.views_together, self.is_frozen = config.views_together, config.freeze_visual
        if self.is_frozen:
            self.visual_extractor.requires_grad_(requires_grad=False)

    def forward(self, images: Tensor, targets: Tensor, packing: Packing | None = None) -> Tensor:
        """Returns float32 log-probabilities [B, T - 1, vocab_size + 1] of the next words of `targets` [B, T].

        Positions that a `packing` of `targets[:, :-1]` leaves out are 0.
        """
        out: Tensor = self.encoder_decoder(self._patches(images), targets, packing)
        return out

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.is_frozen:
            self.visual_extractor.eval()  # its running statistics stay, too
        return self

    def encode(self, images: Tensor, extractor: VisualExtractor | None = None) -> Tensor:
        """Returns the encoder's output [B, views * patches, d_model] for decoding.

        `extractor` replaces the model's own. A frozen extractor runs without autocast, as in training.
        """
        whole = _without_autocast if self.is_frozen else together
        patches = images if images.dim() == 3 else whole(extractor or self.visual_extractor, images)
        return self.encoder_decoder.encode(patches)

    def _patches(self, images: Tensor) -> Tensor:
        if images.dim() == 3:
            return images
        if self.is_frozen:  # as the cached features are computed, so that both agree up to rounding
            with torch.no_grad():
                return halved(_without_autocast(self.visual_extractor, images)).float()
        if not self.training or self.views_together:
            return together(self.visual_extractor, images)
        # Batch norm must see one view at a time: each has its own statistics.
        return torch.cat([self.visual_extractor(view) for view in images.unbind(1)], dim=1)


def together(extractor: VisualExtractor, images: Tensor) -> Tensor:
    """Returns patches [B, views * patches, features], all views in one call of `extractor`."""
    patches: Tensor = extractor(images.flatten(0, 1))
    return patches.reshape(len(images), -1, patches.size(-1))


def _without_autocast(extractor: VisualExtractor, images: Tensor) -> Tensor:
    with torch.autocast(images.device.type, enabled=False):
        return together(extractor, images)


def halved(features: Tensor) -> Tensor:
    """Returns `features` in float16, clamped to its range."""
    largest = torch.finfo(torch.float16).max
    return features.clamp(-largest, largest).half()


def loss_sum(log_probs: Tensor, targets: Tensor) -> Tensor:
    """Returns the summed negative log-likelihood of `targets` [B, T], over the ids that `lengths` counts.

    The end token counts; the padding behind it does not. Divide by the tokens of the whole effective batch,
    so that the gradient does not depend on how the batch was cut into micro-batches.
    """
    counted = _is_word_or_first(targets[:, :-1])
    nll = -log_probs.gather(2, targets[:, 1:, None]).squeeze(2)
    return nll.where(counted, 0).sum()


def _is_word_or_first(ids: Tensor) -> Tensor:
    """Marks the positions of `ids` [B, T] that hold a word or the 0 that begins the report."""
    return (ids > 0) | (torch.arange(ids.size(1), device=ids.device) == 0)


def _training_mask(words: Tensor) -> Tensor:
    """Returns the causal mask [B, 1, T, T]: a word (row) reads itself and earlier ones (columns), no pads."""
    length = words.size(1)
    causal = torch.ones(length, length, dtype=torch.bool, device=words.device).tril()
    return _is_word_or_first(words)[:, None, None, :] & causal
