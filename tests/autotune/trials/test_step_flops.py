"""The FLOPs of a training's first steps are counted, without any other effect."""

import gc
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import _global_optimizer_post_hooks
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from autotune.trials.sending import StepFlops

BATCH, WIDTH = 8, 64


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, given: Tensor) -> Tensor:
        mixed = (
            self.convolution(given.unsqueeze(-1).expand(-1, -1, 4)).transpose(1, 2).unsqueeze(1).contiguous()
        )
        return nn.functional.scaled_dot_product_attention(mixed, mixed, mixed)


def train(
    model: nn.Module, steps: int, dtype: torch.dtype = torch.float32, before: Callable[[int], Any] = id
) -> Iterator[Tensor]:
    """Yields the loss of each step; calls `before` with the step's number at its start."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, steps + 1):
        before(step)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
            loss = model(torch.randn(BATCH, WIDTH)).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        yield loss.detach()


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    hooks = set(_global_optimizer_post_hooks)
    yield
    assert _get_current_dispatch_mode() is None
    for key in set(_global_optimizer_post_hooks) - hooks:
        del _global_optimizer_post_hooks[key]


@pytest.fixture
def flops() -> StepFlops:
    torch.manual_seed(1)
    counted = StepFlops()
    counted.attach()
    return counted


def found(flops: StepFlops, losses: Iterator[Tensor]) -> list[dict[str, int]]:
    """Returns the operations in each step's record."""
    return [dict(flops.take().get("step_flops", {})) for _ in losses]


def test_the_number_of_trained_parameters_is_reported_once(flops: StepFlops) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 32))
    model[0].weight.requires_grad_(False)
    told = [flops.take().get("trained_parameters") for _ in train(model, 4)]
    assert told == [None, WIDTH + WIDTH * 32 + 32, None, None]


def make_four_steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Makes enough steps to end the counting."""
    for _ in range(4):
        torch.autograd.backward(model(torch.randn(BATCH, WIDTH)).square().mean())
        optimizer.step()


def test_a_lazy_module_that_is_never_used_has_no_parameters_to_count(flops: StepFlops) -> None:
    model = nn.ModuleDict({"a": nn.Linear(WIDTH, 32), "unused": nn.LazyLinear(4)})
    optimizer = torch.optim.AdamW(model.parameters())
    flops.take()
    make_four_steps(model["a"], optimizer)
    assert flops.take().get("trained_parameters") == WIDTH * 32 + 32


def test_parameters_that_cannot_be_counted_end_no_training(flops: StepFlops) -> None:
    class Uncountable(nn.Parameter):
        def numel(self) -> int:
            raise NotImplementedError("a form that has no number of elements")

    model = nn.Linear(WIDTH, 32)
    optimizer = torch.optim.SGD([*model.parameters(), Uncountable(torch.ones(1))])
    flops.take()
    make_four_steps(model, optimizer)
    assert "trained_parameters" not in flops.take()


@pytest.mark.parametrize(("dtype", "kind"), [(torch.float32, "fp32"), (torch.bfloat16, "bf16")])
def test_two_steps_are_counted_by_number_format(flops: StepFlops, dtype: torch.dtype, kind: str) -> None:
    layer = 2 * BATCH * WIDTH * 32
    of_a_step = {kind: 2 * layer}  # forward and the weights' gradient; the inputs need none
    assert found(flops, train(nn.Linear(WIDTH, 32), 6, dtype)) == [{}, {}, of_a_step, of_a_step, {}, {}]


@pytest.mark.parametrize("every", [2, 3, 10])
def test_a_record_of_several_steps_has_the_operations_of_all(flops: StepFlops, every: int) -> None:
    step = 2 * 2 * BATCH * WIDTH * 32
    losses = train(nn.Linear(WIDTH, 32), 4 * every)
    told = [flops.take() for number, _ in enumerate(losses, start=1) if number % every == 0]
    assert [record["step_flops"] for record in told if record] == [{"fp32": every * step}] * (4 // every or 1)


def test_a_step_after_a_record_is_of_the_next_one(flops: StepFlops) -> None:
    flops.take()
    ends_s = [time.monotonic() for _ in train(nn.Linear(WIDTH, 32), 5)]
    step = 2 * 2 * BATCH * WIDTH * 32
    assert [flops.take(until_s).get("step_flops") for until_s in (ends_s[1], ends_s[4])] == [
        {"fp32": 2 * step},
        {"fp32": 3 * step},
    ]


def test_convolutions_and_attention_are_counted_as_on_a_gpu(flops: StepFlops) -> None:
    convolution = 2 * BATCH * 4 * WIDTH * WIDTH
    product = 2 * BATCH * 4 * 4 * WIDTH
    # Attention has two products; its backward recomputes the first, and has two per product.
    assert found(flops, train(Attending(), 4))[2] == {"fp32": 2 * convolution + 2 * product + 5 * product}


def test_a_training_is_the_same_to_the_last_bit(flops: StepFlops) -> None:
    flops.take()
    torch.manual_seed(2)
    counted = list(train(Attending(), 6))
    assert flops._flops.is_done
    torch.manual_seed(2)
    assert torch.equal(torch.stack(counted), torch.stack(list(train(Attending(), 6))))


def test_an_error_in_a_step_that_is_counted_is_the_trainings_own(flops: StepFlops) -> None:
    def fail(step: int) -> None:
        if step == 2:
            torch.ones(2) @ torch.ones(3)

    flops.take()
    losses = train(nn.Linear(WIDTH, 32), 3, before=fail)
    with pytest.raises(RuntimeError, match="size"):
        list(losses)
    assert _get_current_dispatch_mode() is not None
    assert found(flops, train(nn.Linear(WIDTH, 32), 25)) == [{}] * 25, "another optimizer's do not count"


def test_counting_ends_with_the_optimizer(flops: StepFlops) -> None:
    flops.take()
    list(train(nn.Linear(WIDTH, 32), 1))
    gc.collect()
    assert found(flops, train(nn.Linear(WIDTH, 32), 1)) == [{}]
    assert _get_current_dispatch_mode() is None


def test_steps_before_the_first_record_are_not_of_the_training(flops: StepFlops) -> None:
    list(train(nn.Linear(WIDTH, 32), 1))
    assert any(found(flops, train(nn.Linear(WIDTH, 32), 4)))


def test_a_formula_that_fails_ends_the_counting_and_not_the_training(
    flops: StepFlops, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: Any, **__: Any) -> int:
        raise ValueError("a form that it does not know")

    registry = torch.utils.flop_counter.flop_registry
    monkeypatch.setitem(registry, torch.ops.aten.addmm, unknown)
    assert found(flops, train(nn.Linear(WIDTH, 32), 6)) == [{}] * 6


def test_a_mode_that_the_training_has_entered_meanwhile_stays(flops: StepFlops) -> None:
    class Own(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    flops.take()
    own = Own()
    with suppress(IndexError):
        list(train(nn.Linear(WIDTH, 32), 5, before=lambda step: own.__enter__() if step == 2 else None))
    assert _get_current_dispatch_mode() is own
    own.__exit__(None, None, None)
    while (mode := _get_current_dispatch_mode()) is not None:
        assert not mode.is_on
        mode.__exit__(None, None, None)


def test_a_process_that_is_forked_meanwhile_is_left_alone(flops: StepFlops) -> None:
    def fork(step: int) -> None:
        if step == 2:
            assert _get_current_dispatch_mode() is not None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # newer Pythons warn of threads
                if not (pid := os.fork()):
                    os._exit(int(_get_current_dispatch_mode() is not None))
            assert os.waitpid(pid, 0)[1] == 0

    flops.take()
    assert all(found(flops, train(nn.Linear(WIDTH, 32), 3, before=fork))[1:])


def test_compiled_steps_are_not_counted(flops: StepFlops, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo.utils as dynamo

    monkeypatch.setitem(dynamo.counters["frames"], "total", 1)
    assert found(flops, train(nn.Linear(WIDTH, 32), 4)) == [{}] * 4
    assert flops._flops.is_done
