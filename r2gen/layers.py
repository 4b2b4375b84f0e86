"""The layers of the transformer, with the parameter names of R2Gen's checkpoints.

After modules/encoder_decoder.py of cuhksz-nlp/R2Gen.
"""

import math
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 - the usual alias
from torch import Tensor, nn

from r2gen.packing import Packing

KeysValues = tuple[Tensor, Tensor]  # each [B, heads, T, d_model / heads]

ATTENTION_DROPOUT = 0.1  # the original never passes its setting on to the attention
_NORM_EPS = 1e-6


def standardise(x: Tensor) -> Tensor:
    """Returns `x` with mean 0 and standard deviation 1 along its last axis.

    Differs from F.layer_norm: the deviation is Bessel-corrected, and the epsilon is outside the root.
    """
    std, mean = torch.std_mean(x, -1, keepdim=True)
    return (x - mean) / (std + _NORM_EPS)


class LayerNorm(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        return self.gamma * standardise(x) + self.beta


class Attention(nn.Module):
    """Multi-head attention over precomputed keys and values, which a decoder can cache."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads, self.dropout = heads, ATTENTION_DROPOUT
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))  # query, key, value, out

    def forward(
        self,
        x: Tensor,
        keys_values: KeysValues,
        mask: Tensor | None = None,
        packing: Packing | None = None,
    ) -> Tensor:
        """Attends from `x` [B, T, d], or packed [N, d], where the bool `mask` is true (none: everywhere)."""
        return self.read(self.split(self.linears[0](x), packing), keys_values, mask, packing)

    def read(
        self,
        query: Tensor,
        keys_values: KeysValues,
        mask: Tensor | None = None,
        packing: Packing | None = None,
    ) -> Tensor:
        """Attends from a `query` [B, heads, T, d / heads]; returns [B, T, d], or [N, d] with a `packing`."""
        dropout = self.dropout if self.training else 0.0
        read = F.scaled_dot_product_attention(query, *keys_values, attn_mask=mask, dropout_p=dropout)
        read = read.transpose(1, 2).flatten(2)
        out: Tensor = self.linears[3](packing.pack(read) if packing else read)
        return out

    def keys_values(self, x: Tensor, packing: Packing | None = None) -> KeysValues:
        return self.split(self.linears[1](x), packing), self.split(self.linears[2](x), packing)

    def joint(self) -> tuple[Tensor, Tensor]:
        """Returns the joint weight [3 * d, d] and bias [3 * d] of query, key and value."""
        linears = cast("list[nn.Linear]", list(self.linears[:3]))
        return torch.cat([linear.weight for linear in linears]), torch.cat([one.bias for one in linears])

    def split(self, x: Tensor, packing: Packing | None = None) -> Tensor:
        """Splits `x` [B, T, d], or packed, into heads: [B, heads, T, d / heads]."""
        grid = packing.unpack(x) if packing else x
        return grid.view(*grid.shape[:2], self.heads, -1).transpose(1, 2)


class FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.w_2(self.dropout(F.relu(self.w_1(x))))
        return out


class Embeddings(nn.Module):
    def __init__(self, d_model: int, classes: int) -> None:
        super().__init__()
        self.lut = nn.Embedding(classes, d_model)
        self.scale = math.sqrt(d_model)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.lut(ids) * self.scale
        return out


class PositionalEncoding(nn.Module):
    pe: Tensor

    def __init__(self, d_model: int, length: int = 5000) -> None:
        super().__init__()
        rate = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
        angle = torch.arange(length)[:, None] * rate
        pe = torch.zeros(1, length, d_model)
        pe[0, :, 0::2] = torch.sin(angle)
        pe[0, :, 1::2] = torch.cos(angle)[:, : d_model // 2]
        self.register_buffer("pe", pe)

    def forward(self, x: Tensor, position: int | None = None) -> Tensor:
        """Adds the codes of positions 0 to T - 1 to `x` [B, T, d], or the code of `position` everywhere."""
        return x + (self.pe[:, : x.size(1)] if position is None else self.pe[:, position])
