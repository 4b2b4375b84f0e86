"""The optimizer is R2Gen's: two learning rates, L2 decay on everything, gradients clipped by value."""

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

from r2gen import optim
from r2gen.config import Config
from r2gen.model import R2Gen
from r2gen.optim import Position

Make = Callable[..., Config]


def _model(config: Config) -> R2Gen:
    torch.manual_seed(0)
    return R2Gen(config, 20)


def _give_gradients(model: nn.Module, scale: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.grad = scale * torch.randn(parameter.shape, generator=generator)


def test_the_visual_extractor_has_its_share_of_the_learning_rate(make_config: Make) -> None:
    config = make_config(learning_rate=1e-2, visual_learning_rate_ratio=0.25, weight_decay=0.5)
    model = _model(config)
    visual, rest = optim.optimizer(model, config).param_groups
    assert (visual["lr"], rest["lr"]) == (0.25e-2, 1e-2)
    assert visual["weight_decay"] == rest["weight_decay"] == 0.5
    assert {id(p) for p in visual["params"]} == {id(p) for p in model.visual_extractor.parameters()}
    together = [id(p) for group in (visual, rest) for p in group["params"]]
    assert sorted(together) == sorted(id(p) for p in model.parameters())


@pytest.mark.parametrize("amsgrad", [True, False])
def test_an_update_is_plain_adams(make_config: Make, amsgrad: bool) -> None:
    """Compares the fused kernel with the loop over single tensors."""
    config = make_config(amsgrad=amsgrad, weight_decay=0.1)
    ours, plain = _model(config), _model(config)
    optimizer = optim.optimizer(ours, config)
    reference = torch.optim.Adam(
        [
            {"params": plain.visual_extractor.parameters(), "lr": config.learning_rate * 0.5},
            {"params": plain.encoder_decoder.parameters(), "lr": config.learning_rate},
        ],
        weight_decay=0.1,
        amsgrad=amsgrad,
        foreach=False,
    )
    for scale in (1.0, 0.1, 0.01):  # falling, so that amsgrad's maximum differs from the average
        for model, stepped in ((ours, optimizer), (plain, reference)):
            _give_gradients(model, scale)
            stepped.step()
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-4, atol=1e-6, msg=name)
    assert ("max_exp_avg_sq" in next(iter(optimizer.state.values()))) is amsgrad


@pytest.mark.parametrize("gamma", [0.1, 0.3])
def test_both_learning_rates_fall_every_so_many_epochs_as_pytorch_has_it(
    make_config: Make, gamma: float
) -> None:
    """Bit-identical."""
    config = make_config(learning_rate=1e-4, lr_step_epochs=2, lr_gamma=gamma)
    ours, plain = (optim.optimizer(_model(config), config) for _ in range(2))
    schedule = StepLR(plain, 2, gamma)
    for epoch in range(1, 12):
        shown = optim.set_rates(ours, config, Position(epoch, samples=10 * (epoch - 1), studies=4, total=110))
        rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in (ours, plain)]
        assert rates[0] == rates[1]
        assert shown == rates[0][1]
        plain.step()
        schedule.step()


def _rates(config: Config, starts: Iterable[int], total: int = 1000, studies: int = 10) -> list[float]:
    return [optim.rate(1.0, config, Position(1, samples, studies, total)) for samples in starts]


def test_the_learning_rate_rises_over_so_many_samples_whatever_the_batch(make_config: Make) -> None:
    config = make_config(warmup_samples=40)
    assert _rates(config, range(0, 60, 10)) == [0.25, 0.5, 0.75, 1, 1, 1]
    assert _rates(config, range(0, 60, 20), studies=20) == [0.5, 1, 1]


@pytest.mark.parametrize("warmup", [0, 200])
def test_a_cosine_falls_from_the_end_of_the_warm_up_to_the_end_of_the_training(
    make_config: Make, warmup: int
) -> None:
    config = make_config(warmup_samples=warmup, schedule="cosine")
    quarter = (1000 - warmup) // 4
    starts = [warmup + part * quarter for part in range(5)]
    expected = [1, (2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4, 0]
    assert _rates(config, starts) == pytest.approx(expected, abs=1e-12)
    assert _rates(config, [2000]) == [0]  # beyond the end, in a prolonged training


def test_a_cosine_is_not_cut_in_steps(make_config: Make) -> None:
    config = make_config(schedule="cosine", lr_step_epochs=1)
    assert optim.rate(1.0, config, Position(9, 0, 10, 1000)) == 1


def test_clipping_is_by_value_and_returns_the_norm_before() -> None:
    ours, plain = nn.Linear(40, 30), nn.Linear(40, 30)
    for model in (ours, plain):
        _give_gradients(model)
    whole = torch.cat([p.grad.flatten() for p in ours.parameters() if p.grad is not None])
    norm = optim.clip(ours.parameters(), 0.1)
    nn.utils.clip_grad_value_(plain.parameters(), 0.1)
    assert norm.item() == pytest.approx(whole.norm().item())
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)
        assert one.grad.abs().max() <= 0.1


def test_parameters_without_a_gradient_are_skipped() -> None:
    layer = nn.Linear(2, 2)
    layer.weight.grad = torch.full((2, 2), 3.0)
    assert optim.clip(layer.parameters(), 1.0).item() == pytest.approx(6)
    assert layer.bias.grad is None
