import json

import pytest
import torch
from torch.nn import functional

from r2gen.model import EncoderDecoder, R2Gen, loss_sum, together
from r2gen.packing import Packing, lengths
from r2gen.visual import folded
from tests.tiny_r2gen import attend_without_dropout

from .golden import GOLDEN, RECORDING, tiny


def still(model):
    """Returns `model` without any dropout, for comparing training runs."""
    attend_without_dropout(model)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def batch(studies=2, length=9, size=64):
    generator = torch.Generator().manual_seed(1)
    targets = torch.randint(1, 20, (studies, length), generator=generator)
    targets[:, 0] = 0
    targets[0, length - 3 :] = 0
    return torch.randn(studies, 2, 3, size, size, generator=generator), targets


def build(**settings):
    torch.manual_seed(0)
    return R2Gen(tiny(**settings), 20)


def gradients(model, images, targets):
    (loss_sum(model(images, targets), targets) / sum(lengths(targets))).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_same(given, expected, bound=1e-4):
    """Compares gradients relative to their largest element; those of key biases are truly 0."""
    for name, gradient in expected.items():
        if not name.endswith(".linears.1.bias"):
            difference = (given[name] - gradient).abs().max()
            assert difference <= bound * gradient.abs().max(), name


def test_the_published_model_has_the_keys_and_shapes_of_the_original():
    expected = json.loads((GOLDEN / "r2gen_iu_state_dict_keys.json").read_text())
    published = {
        "visual_extractor": "resnet101",
        "d_model": 512,
        "d_ff": 512,
        "num_heads": 8,
        "num_layers": 3,
    }
    with torch.device("meta"):
        model = R2Gen(tiny(**published, rm_num_heads=8), 760)
    assert len(expected) == 848
    assert {key: list(value.shape) for key, value in model.state_dict().items()} == expected


def test_the_position_codes_are_the_originals():
    decoder = RECORDING.decoder()
    torch.testing.assert_close(decoder.model.tgt_embed[1].pe[0, :16], RECORDING.tensor("pe_first16"))


def test_the_encoder_is_the_originals():
    decoder = RECORDING.decoder()
    patches = RECORDING.tensor("in/att_feats")
    torch.testing.assert_close(
        decoder.encode(patches), RECORDING.tensor("fwd/encoder_out"), rtol=1e-4, atol=1e-5
    )


def test_log_probabilities_and_loss_are_the_originals():
    targets = RECORDING.tensor("in/targets")
    log_probs = RECORDING.decoder()(RECORDING.tensor("in/att_feats"), targets)
    torch.testing.assert_close(log_probs, RECORDING.tensor("fwd/logprobs"), rtol=0, atol=1e-5)
    tokens = sum(lengths(targets))
    mean = loss_sum(log_probs, targets).item() / tokens
    assert mean == pytest.approx(float(RECORDING.model["fwd/loss"]), abs=1e-6)
    assert tokens == RECORDING.tensor("in/masks")[:, 1:].sum().item()


def test_double_precision_agrees_closely():
    log_probs = RECORDING.decoder().double()(
        RECORDING.tensor("in/att_feats").double(), RECORDING.tensor("in/targets")
    )
    torch.testing.assert_close(log_probs, RECORDING.tensor("fwd/logprobs_f64"), rtol=0, atol=1e-9)


def test_log_probabilities_are_normalised_and_one_for_each_next_word():
    images, targets = batch()
    log_probs = build()(images, targets)
    assert log_probs.shape == (2, 8, 21)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2, 8))


def test_a_word_does_not_see_later_ones_and_padding_changes_nothing():
    images, targets = batch()
    model = build().eval()
    expected = model(images, targets)
    changed = targets.clone()
    changed[1, 5] = changed[1, 5] % 20 + 1
    given = model(images, changed)
    torch.testing.assert_close(given[1, :5], expected[1, :5])
    assert not torch.allclose(given[1, 5], expected[1, 5])
    padded = model(images, functional.pad(targets, (0, 4)))
    torch.testing.assert_close(padded[:, :8], expected, rtol=1e-5, atol=1e-5)


def test_the_loss_counts_the_end_of_a_report_and_not_the_padding_behind_it():
    targets = torch.tensor([[0, 3, 2, 0, 0, 0], [0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]])
    log_probs = torch.full((3, 5, 4), -1.0)
    log_probs[0, 2, 0] = -7.0  # the end
    log_probs[0, 3, 0] = -100.0  # padding
    assert lengths(targets) == [3, 5, 1]
    assert loss_sum(log_probs, targets).item() == pytest.approx(9 - 1 + 7)


def test_the_gradient_of_a_batch_is_the_sum_over_its_halves():
    """Gradient accumulation relies on it. Without batch norm, whose statistics depend on the batch."""
    decoder = still(EncoderDecoder(tiny(), 12, 20))
    patches = torch.randn(4, 5, 12)
    targets = torch.cat([batch()[1], batch()[1].flip(0)])
    whole = loss_sum(decoder(patches, targets), targets)
    halves = [loss_sum(decoder(patches[i : i + 2], targets[i : i + 2]), targets[i : i + 2]) for i in (0, 2)]
    torch.testing.assert_close(sum(halves), whole)


def test_views_have_their_own_batch_statistics_in_training_only():
    images, targets = batch()
    model = build()
    images[:, 1] += 3
    one = torch.cat([model.visual_extractor(images[:, view]) for view in (0, 1)], 1)
    both = model.visual_extractor(images.flatten(0, 1)).reshape(one.shape)
    assert not torch.allclose(one, both, atol=1e-3)
    seen = []
    model.encoder_decoder.att_embed.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(images, targets)
    torch.testing.assert_close(seen[0], one)
    model.eval().encode(images)
    expected = torch.cat([model.visual_extractor(images[:, view]) for view in (0, 1)], 1)
    torch.testing.assert_close(seen[1], expected, rtol=1e-4, atol=1e-5)


def test_encoding_gives_every_patch_of_every_view():
    images, _ = batch()
    assert build().eval().encode(images).shape == (2, 2 * 4, 16)


def test_a_frozen_extractor_has_the_features_of_training_in_every_precision():
    """Also if another extractor replaces its own."""
    images, _ = batch()
    model = build(freeze_visual=True).eval()
    for extractor in (None, folded(model.visual_extractor)):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            encoded = model.encode(images, extractor)
            with torch.autocast("cpu", enabled=False):
                features = together(extractor or model.visual_extractor, images)
            assert torch.equal(encoded, model.encode(features))


def test_activation_checkpointing_changes_no_gradient():
    images, targets = batch()
    plain = gradients(still(build()), images, targets)
    saving = gradients(still(build(activation_checkpointing=True)), images, targets)
    assert_same(saving, plain, bound=1e-6)


def test_activation_checkpointing_repeats_the_dropout_that_it_drew():
    images, targets = batch()
    results = []
    for checkpointing in (False, True):
        model = build(dropout=0.3, activation_checkpointing=checkpointing)
        torch.manual_seed(5)
        results.append(gradients(model, images, targets))
    assert_same(results[1], results[0], bound=1e-6)


def test_attention_dropout_does_not_depend_on_the_setting():
    images, targets = batch()
    model = build(dropout=0.0, drop_prob_lm=0.0)
    model.visual_extractor.eval()
    assert not torch.equal(model(images, targets), model(images, targets))
    model.eval()
    assert torch.equal(model(images, targets), model(images, targets))


@pytest.mark.parametrize("setting", ["dropout", "drop_prob_lm"])
def test_dropout_settings_are_honoured(setting):
    images, targets = batch()
    for share, same in ((0.0, True), (0.5, False)):
        model = build(**{"dropout": 0.0, "drop_prob_lm": 0.0, setting: share})
        attend_without_dropout(model)
        model.visual_extractor.eval()
        assert torch.equal(model(images, targets), model(images, targets)) is same


def test_the_memory_and_the_decoder_draw_their_own_dropout():
    model = EncoderDecoder(tiny(dropout=0.5, drop_prob_lm=0.0), 12, 20)
    seen = {}
    model.model.rm.register_forward_pre_hook(lambda _, inputs: seen.update(memory=inputs[0]))
    model.model.decoder.register_forward_pre_hook(lambda _, inputs: seen.update(decoder=inputs[0]))
    model(torch.randn(2, 5, 12), batch()[1])
    assert not torch.equal(seen["memory"] == 0, seen["decoder"] == 0)


def test_leaving_padding_out_changes_neither_loss_nor_gradients():
    torch.manual_seed(0)
    decoder = still(EncoderDecoder(tiny(), 12, 20)).double()
    patches, targets = torch.randn(4, 5, 12).double(), torch.randint(1, 21, (4, 9))
    targets[:, 0] = 0
    for row, length in enumerate((9, 3, 6, 1)):
        targets[row, length:] = 0
    losses, gradients = [], []
    for packing in (None, Packing.from_lengths([8, 3, 6, 1], patches.device)):
        loss = loss_sum(decoder(patches, targets, packing), targets) / sum(lengths(targets))
        losses.append(loss.detach())
        gradients.append(torch.autograd.grad(loss, list(decoder.parameters())))
    torch.testing.assert_close(*losses, rtol=1e-12, atol=0)
    for whole, packed in zip(*gradients, strict=True):
        torch.testing.assert_close(packed, whole, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_trains_close_to_full_precision(dtype):
    torch.manual_seed(0)
    decoder = still(EncoderDecoder(tiny(), 12, 20))
    patches, targets = torch.randn(2, 5, 12), batch()[1]
    expected = decoder(patches, targets)
    with torch.autocast("cpu", dtype=dtype):
        given = decoder(patches, targets)
    assert given.dtype == torch.float32
    torch.testing.assert_close(given, expected, rtol=0, atol=0.1)
    loss_sum(given, targets).backward()
    assert all(parameter.grad.isfinite().all() for parameter in decoder.parameters())


def test_views_in_one_call_share_their_statistics():
    images, targets = batch()
    apart, shared = build(), build(views_together=True)
    for model in (apart, shared):
        model(images, targets)
    counts = [int(m.visual_extractor.model[1].num_batches_tracked) for m in (apart, shared)]
    assert counts == [2, 1]
