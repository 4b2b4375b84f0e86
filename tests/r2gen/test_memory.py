import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from r2gen.layers import LayerNorm
from r2gen.memory import ConditionalLayerNorm, RelationalMemory
from r2gen.packing import Packing

from .golden import RECORDING


@pytest.fixture
def transformer():
    return RECORDING.decoder().model


def remember(memory, words, state):
    """Returns the memory after each of the `words` [B, T, d]: [B, T, slots * d]."""
    packing = Packing.full(words)
    return packing.unpack(memory(packing.pack(words), state, packing.running))


def close(given, expected):
    torch.testing.assert_close(given, expected, rtol=1e-5, atol=1e-5)


def test_the_memory_is_the_originals(transformer):
    memory = RECORDING.tensor("fwd/rm_mem0")
    torch.testing.assert_close(transformer.rm.initial(4), memory)
    close(remember(transformer.rm, RECORDING.tensor("fwd/rm_in"), memory), RECORDING.tensor("fwd/rm_out"))


def test_one_step_from_any_state_is_the_originals(transformer):
    state = RECORDING.tensor("rm_step/state").view(4, 3, 32)
    close(
        transformer.rm(RECORDING.tensor("rm_step/input"), state, torch.tensor([4])),
        RECORDING.tensor("rm_step/out"),
    )


def test_words_can_be_given_one_by_one(transformer):
    words, memory = RECORDING.tensor("fwd/rm_in"), transformer.rm.initial(4)
    for t in range(words.size(1)):
        memory = transformer.rm(words[:, t], memory, torch.tensor([4])).view(4, 3, 32)
    close(memory.flatten(1), RECORDING.tensor("fwd/rm_out")[:, -1])


def test_the_norms_are_the_originals(transformer):
    conditional = transformer.decoder.layers[0].sublayer[0].norm
    close(
        conditional(RECORDING.tensor("fwd/cln_in"), RECORDING.tensor("fwd/rm_out")),
        RECORDING.tensor("fwd/cln_out"),
    )
    plain = transformer.encoder.layers[0].sublayer[0].norm
    close(plain(RECORDING.tensor("fwd/att_embed_out")), RECORDING.tensor("fwd/ln_out"))


def test_the_norm_is_not_torchs():
    x = torch.randn(5, 32)
    norm = LayerNorm(32)
    assert (norm(x) - F.layer_norm(x, (32,))).abs().max() > 1e-3
    torch.testing.assert_close(norm(x).std(-1), torch.ones(5), rtol=1e-4, atol=1e-4)


def test_a_row_without_variance_has_a_finite_gradient():
    """For example an image patch that dropout and ReLU set to zero."""
    x = torch.zeros(2, 8, requires_grad=True)
    LayerNorm(8)(x).sum().backward()
    assert x.grad.isfinite().all()


def test_the_memory_stays_in_full_precision_under_autocast():
    torch.manual_seed(0)
    memory = RelationalMemory(16, slots=3, heads=2).eval()
    words = torch.randn(2, 7, 16)
    expected = remember(memory, words, memory.initial(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        given = remember(memory, words, memory.initial(2))
    assert given.dtype == torch.float32
    assert torch.equal(given, expected)


def test_more_slots_than_dimensions_start_cut():
    torch.testing.assert_close(RelationalMemory(8, slots=10, heads=2).initial(2)[1], torch.eye(10, 8))


def test_the_conditional_norm_starts_as_the_original_does():
    norm = ConditionalLayerNorm(16, slots=3)
    assert norm.gamma.eq(1).all()
    assert norm.beta.eq(0).all()
    assert all(mlp[i].bias.eq(0.1).all() for mlp in (norm.mlp_gamma, norm.mlp_beta) for i in (0, 2))
