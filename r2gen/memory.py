"""R2Gen's relational memory and the layer norm that it drives (arXiv:2010.16056)."""

import torch
import torch.nn.functional as F  # noqa: N812 - the usual alias
from torch import Tensor, nn

from r2gen.layers import Attention, standardise


class RelationalMemory(nn.Module):
    """A memory of `slots` vectors, updated at every word by attention and two gates.

    It runs in full precision under autocast: it is recurrent, and half precision ruins its gradients.
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
        """Returns the memory before the first word, [batch, slots, d_model]."""
        weight = self.U.weight
        eye = torch.eye(self.slots, weight.size(1), dtype=weight.dtype, device=weight.device)
        return eye.expand(batch, -1, -1)

    def forward(self, words: Tensor, memory: Tensor, running: Tensor) -> Tensor:
        """Returns `memory` [B, slots, d] after each of the packed `words` [N, d], packed: [N, slots * d].

        `running` comes from the packing: the reports that are still running at each step.
        """
        with torch.autocast(words.device.type, enabled=False):
            weight, bias = self.attn.joint()
            d_model, sizes = words.size(1), running.tolist()
            # Projections that do not depend on the memory are computed for all words at once.
            read = torch.split(F.linear(words, weight[d_model:], bias[d_model:])[:, None], sizes)
            gates = torch.split(self.W(words)[:, None], sizes)
            states = []
            for size, word, gate in zip(sizes, read, gates, strict=True):
                memory = self._step(memory[:size], F.linear(memory[:size], weight, bias), word, gate)
                states.append(memory)
            return torch.cat(states).flatten(1)

    def _step(self, memory: Tensor, joint: Tensor, word: Tensor, gate: Tensor) -> Tensor:
        """Returns the memory after one word, from its query, key and value and the word's key and value."""
        query, own = torch.split(joint, [memory.size(2), word.size(2)], dim=2)
        key, value = torch.cat((own, word), dim=1).chunk(2, dim=2)
        updated = memory + self.attn.read(
            self.attn.split(query), (self.attn.split(key), self.attn.split(value))
        )
        updated = updated + self.mlp(updated)
        take, keep = torch.sigmoid(gate + self.U(torch.tanh(memory))).chunk(2, dim=-1)
        return torch.addcmul(keep * memory, take, torch.tanh(updated))


class ConditionalLayerNorm(nn.Module):
    """A layer norm whose scale and shift are modulated by the memory at each word."""

    def __init__(self, d_model: int, slots: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))
        self.mlp_gamma = _delta(d_model, slots)
        self.mlp_beta = _delta(d_model, slots)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """Normalises `x` [..., d] under `memory` [..., slots * d]."""
        gamma = self.gamma + self.mlp_gamma(memory)
        beta = self.beta + self.mlp_beta(memory)
        out: Tensor = gamma * standardise(x) + beta
        return out


def _delta(d_model: int, slots: int) -> nn.Sequential:
    first, second = nn.Linear(slots * d_model, d_model), nn.Linear(d_model, d_model)
    for linear in (first, second):
        nn.init.constant_(linear.bias, 0.1)
    return nn.Sequential(first, nn.ReLU(), second)
