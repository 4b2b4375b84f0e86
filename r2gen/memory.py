"""R2Gen's relational memory and the layer norm that it drives (arXiv:2010.16056)."""

import torch
from torch import Tensor, nn

from r2gen.layers import Attention, KeysValues, standardise


class RelationalMemory(nn.Module):
    """A memory of `slots` vectors, rewritten at every word by attention and two gates.

    It is recurrent, and half precision spoils its gradients: it computes in full precision under autocast.
    """

    def __init__(self, d_model: int, slots: int, heads: int) -> None:
        super().__init__()
        self.slots = slots
        self.attn = Attention(d_model, heads)
        self.mlp = nn.Sequential(
            nn.Linear(d_model, d_model), nn.ReLU(), nn.Linear(d_model, d_model), nn.ReLU()
        )
        self.W = nn.Linear(d_model, d_model * 2)
        self.U = nn.Linear(d_model, d_model * 2)

    def initial(self, batch: int) -> Tensor:
        """The memory before the first word, [batch, slots, d_model]."""
        weight = self.U.weight
        eye = torch.eye(self.slots, weight.size(1), dtype=weight.dtype, device=weight.device)
        return eye.expand(batch, -1, -1)

    # The loop over words is left out of torch.compile: unrolled, it compiles anew for every length of report.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, words: Tensor, memory: Tensor, running: Tensor) -> Tensor:
        """`memory` [B, slots, d] as it is after each of the packed `words` [N, d]: packed [N, slots * d].

        `running` is a packing's: how many of the memories go on at each step.
        """
        with torch.autocast(words.device.type, enabled=False):
            sizes = running.tolist()
            keys, values = (torch.split(part, sizes) for part in self.attn.keys_values(words[:, None]))
            gates = torch.split(self.W(words)[:, None], sizes)
            states = []
            for size, key, value, gate in zip(sizes, keys, values, gates, strict=True):
                memory = self._step(memory[:size], (key, value), gate)
                states.append(memory)
            return torch.cat(states).flatten(1)

    def _step(self, memory: Tensor, word: KeysValues, word_gates: Tensor) -> Tensor:
        pairs = zip(self.attn.keys_values(memory), word, strict=True)
        keys, values = (torch.cat(pair, dim=2) for pair in pairs)
        updated = memory + self.attn(memory, (keys, values))
        updated = updated + self.mlp(updated)
        gates = torch.sigmoid(word_gates + self.U(torch.tanh(memory)))
        take, keep = gates.chunk(2, dim=-1)
        return take * torch.tanh(updated) + keep * memory


class ConditionalLayerNorm(nn.Module):
    """A layer norm whose scale and shift are moved by the memory at that word."""

    def __init__(self, d_model: int, slots: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))
        self.mlp_gamma = _delta(d_model, slots)
        self.mlp_beta = _delta(d_model, slots)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """`x` [..., d] normalised under `memory` [..., slots * d]."""
        gamma = self.gamma + self.mlp_gamma(memory)
        beta = self.beta + self.mlp_beta(memory)
        out: Tensor = gamma * standardise(x) + beta
        return out


def _delta(d_model: int, slots: int) -> nn.Sequential:
    first, second = nn.Linear(slots * d_model, d_model), nn.Linear(d_model, d_model)
    for linear in (first, second):
        nn.init.constant_(linear.bias, 0.1)
    return nn.Sequential(first, nn.ReLU(), second)
