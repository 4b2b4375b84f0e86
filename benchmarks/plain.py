"""R2Gen's training step in plain form, as in the published code: over our parameters, eager, padded.

The reference of the benchmarks. It equals an r2gen.model.R2Gen with the same parameters.
"""

import math

import torch
from torch import Tensor, nn

from r2gen.config import Config
from r2gen.layers import Attention, LayerNorm
from r2gen.memory import ConditionalLayerNorm, RelationalMemory
from r2gen.model import R2Gen


def loss(model: R2Gen, images: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean negative log-likelihood per counted id."""
    patches = torch.cat([model.visual_extractor(view) for view in images.unbind(1)], dim=1)
    log_probs = forward(model, patches, targets)
    mask = targets > 0
    mask = torch.cat((torch.ones_like(mask[:, :1]), mask[:, 1:-1]), dim=1).to(log_probs.dtype)
    nll = -log_probs.gather(2, targets[:, 1:].unsqueeze(2)).squeeze(2) * mask
    return nll.sum() / mask.sum()


def forward(model: R2Gen, patches: Tensor, targets: Tensor) -> Tensor:
    """Returns log-probabilities [B, T - 1, classes] of each next word."""
    decoder = model.encoder_decoder
    x = decoder.att_embed(patches)
    for layer in decoder.model.encoder.layers:
        attend, feed = layer.sublayer
        y = norm(attend.norm, x)
        x = x + attend.dropout(attention(layer.self_attn, y, y, y, None))
        x = x + feed.dropout(layer.feed_forward(norm(feed.norm, x)))
    encoded = norm(decoder.model.encoder.norm, x)
    words = targets[:, :-1]
    first = torch.zeros_like(words, dtype=torch.bool)
    first[:, 0] = True
    mask = ((words > 0) | first)[:, None] & torch.ones(
        words.size(1), words.size(1), dtype=torch.bool, device=words.device
    ).tril()
    memory = remember(decoder.model.rm, decoder.dropout(decoder.model.tgt_embed(words)))
    x = decoder.dropout(decoder.model.tgt_embed(words))
    for layer in decoder.model.decoder.layers:
        own, source, feed = layer.sublayer
        y = conditional(own.norm, x, memory)
        x = x + own.dropout(attention(layer.self_attn, y, y, y, mask))
        y = conditional(source.norm, x, memory)
        x = x + source.dropout(attention(layer.src_attn, y, encoded, encoded, None))
        x = x + feed.dropout(layer.feed_forward(conditional(feed.norm, x, memory)))
    return torch.log_softmax(decoder.logit(norm(decoder.model.decoder.norm, x)), dim=-1)


def attention(module: Attention, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    batch, heads = len(query), module.heads
    query, key, value = (
        linear(x).view(batch, -1, heads, linear.out_features // heads).transpose(1, 2)
        for linear, x in zip(module.linears, (query, key, value), strict=False)
    )
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask.unsqueeze(1), -1e9)
    weights = nn.functional.dropout(scores.softmax(-1), module.dropout, module.training)
    read = (weights @ value).transpose(1, 2).contiguous().view(batch, -1, heads * query.size(-1))
    out: Tensor = module.linears[3](read)
    return out


def norm(module: LayerNorm, x: Tensor) -> Tensor:
    mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
    return module.gamma * (x - mean) / (std + 1e-6) + module.beta


def conditional(module: ConditionalLayerNorm, x: Tensor, memory: Tensor) -> Tensor:
    mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
    hats = []
    for base, move in ((module.gamma, module.mlp_gamma), (module.beta, module.mlp_beta)):
        hat = torch.stack([base.clone()] * x.size(0), dim=0)
        hat = torch.stack([hat] * x.size(1), dim=1)
        hats.append(hat + move(memory))
    return hats[0] * (x - mean) / (std + 1e-6) + hats[1]


def remember(module: RelationalMemory, words: Tensor) -> Tensor:
    memory = module.initial(len(words))
    states = []
    for t in range(words.size(1)):
        word = words[:, t]
        key = torch.cat((memory, word.unsqueeze(1)), dim=1)
        after = memory + attention(module.attn, memory, key, key, None)
        after = after + module.mlp(after)
        gates = module.W(word.unsqueeze(1)) + module.U(torch.tanh(memory))
        take, keep = torch.split(gates, gates.size(2) // 2, dim=2)
        memory = torch.sigmoid(take) * torch.tanh(after) + torch.sigmoid(keep) * memory
        states.append(memory.reshape(len(words), -1))
    return torch.stack(states, dim=1)


def optimizer(model: R2Gen, config: Config) -> torch.optim.Adam:
    visual = list(map(id, model.visual_extractor.parameters()))
    return torch.optim.Adam(
        [
            {"params": [p for p in model.parameters() if id(p) in visual], "lr": config.learning_rate / 2},
            {"params": [p for p in model.parameters() if id(p) not in visual], "lr": config.learning_rate},
        ],
        weight_decay=config.weight_decay,
        amsgrad=True,
        foreach=False,
    )
