"""R2Gen's relational memory and the layer norm that it drives (arXiv:2010.16056)."""

from collections.abc import Callable
from typing import Any

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
        self._compiled_step: Callable[..., Tensor] | None = None

    def compile_step(self, backend: str | Callable[..., Any] = "inductor") -> None:
        """Compiles the step of a training from one word to the next, once for any number of reports.

        The loop over the words stays as it is. On a GPU, starting the many small operations of a step takes
        longer than computing them.
        """
        if self._compiled_step is None:
            self._compiled_step = torch.compile(self._step, dynamic=True, backend=backend)

    def initial(self, batch: int) -> Tensor:
        """Returns the memory before the first word, [batch, slots, d_model]."""
        weight = self.U.weight
        eye = torch.eye(self.slots, weight.size(1), dtype=weight.dtype, device=weight.device)
        return eye.expand(batch, -1, -1)

    def forward(self, words: Tensor, memory: Tensor, running: Tensor | tuple[int, ...]) -> Tensor:
        """Returns `memory` [B, slots, d] after each of the packed `words` [N, d], packed: [N, slots * d].

        `running` comes from the packing: the reports that are still running at each step. As a tuple, not a
        tensor, it becomes part of the program that torch.compile builds, with the loop over words unrolled.
        """
        if isinstance(running, Tensor):
            out: Tensor = self._uncompiled(words, memory, running)
            return out
        return self._over(words, memory, list(running))

    # Unrolled, the loop would be recompiled for every other report length.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _uncompiled(self, words: Tensor, memory: Tensor, running: Tensor) -> Tensor:
        return self._over(words, memory, running.tolist())

    def _over(self, words: Tensor, memory: Tensor, sizes: list[int]) -> Tensor:
        with torch.autocast(words.device.type, enabled=False):
            weight, bias = self.attn.joint()
            d_model = words.size(1)
            # Projections that do not depend on the memory are computed for all words at once.
            read = torch.split(F.linear(words, weight[d_model:], bias[d_model:])[:, None], sizes)
            gates = torch.split(self.W(words)[:, None], sizes)
            states = []
            for size, word, gate in zip(sizes, read, gates, strict=True):
                step = self._step
                if self._compiled_step and self.training and size > 1:  # torch would specialise on 1
                    step = self._compiled_step
                memory = step(memory[:size], F.linear(memory[:size], weight, bias), word, gate)
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
