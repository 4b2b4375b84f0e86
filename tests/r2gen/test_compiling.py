"""A model compiled once handles every batch: a later compilation would distort the measured speed."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from r2gen import precision
from r2gen.compiling import compiled
from r2gen.config import Config
from r2gen.data import padded
from r2gen.memory import RelationalMemory
from r2gen.model import R2Gen
from r2gen.packing import Packing, lengths
from tests.tiny_r2gen import attend_without_dropout

from .golden import tiny


@pytest.fixture
def _without_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Traces programs as the compiler does, but generates no code for them."""
    compiler = torch.compile

    def traced(model: torch.nn.Module, mode: str, **options: Any) -> Any:
        return compiler(model, backend="eager", **options)

    monkeypatch.setattr(torch, "compile", traced)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def by_program(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that compiled programs compute; nothing is compiled for them."""
    sizes: list[int] = []

    def compiler(called: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        def program(images: Tensor, *rest: Any) -> Any:
            sizes.append(len(images))
            return called(images, *rest)

        return program

    monkeypatch.setattr(torch, "compile", compiler)
    return sizes


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the device of trainings one of this kind."""
    return lambda kind: monkeypatch.setattr(precision, "device", partial(torch.device, kind))


def _batch(config: Config, words: list[int]) -> tuple[Tensor, Tensor, Packing]:
    """Returns images, or features of a frozen extractor, and reports of the given lengths in words."""
    size = config.image_size
    shape = (6, 512) if config.freeze_visual else (config.views, 3, size, size)
    targets = padded([[0, *[3] * count, 0] for count in words])
    packing = Packing.from_lengths(lengths(targets), torch.device("cpu"))
    return torch.randn(len(words), *shape), targets, packing


@pytest.mark.long
@pytest.mark.usefixtures("_without_code")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # from the compiler
@pytest.mark.parametrize(
    "settings",
    [
        {"freeze_visual": True},
        pytest.param({"freeze_visual": False}, marks=pytest.mark.soak),
        pytest.param({"activation_checkpointing": True}, marks=pytest.mark.soak),
    ],
)
def test_one_program_serves_reports_and_batches_of_every_size(settings: dict[str, Any]) -> None:
    config = tiny(compile="default", micro_batch_size=4, dropout=0.0, drop_prob_lm=0.0, **settings)
    model = R2Gen(config, 20).train()
    attend_without_dropout(model)
    forward = compiled(model, config)
    forward(*_batch(config, [9, 7, 5, 3]))
    with torch.compiler.set_stance("fail_on_recompile"):
        for words in ([12, 6, 2, 1], [8, 3], [7, 6, 6], [5], [8, 8, 4, 1]):
            batch = _batch(config, words)
            torch.testing.assert_close(forward(*batch), model(*batch))


@pytest.mark.long
@pytest.mark.usefixtures("_without_code")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # from the compiler
def test_on_a_gpu_one_program_serves_whole_batches_with_reports_of_every_length(
    monkeypatch: pytest.MonkeyPatch, on: Callable[[str], None]
) -> None:
    on("cuda")
    monkeypatch.setattr(RelationalMemory, "compile_step", lambda _: None)
    config = tiny(compile="default", micro_batch_size=4, dropout=0.0, drop_prob_lm=0.0)
    model = R2Gen(config, 20).train()
    attend_without_dropout(model)
    forward = compiled(model, config)
    forward(*_batch(config, [9, 7, 5, 3]))
    with torch.compiler.set_stance("fail_on_recompile"):
        for words in ([12, 6, 2, 1], [8, 3], [5], [8, 8, 4, 1]):
            batch = _batch(config, words)
            torch.testing.assert_close(forward(*batch), model(*batch))


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor:UserWarning",
    "ignore:`torch.jit.script_method`:DeprecationWarning",
)  # from the compiler
@pytest.mark.long
def test_the_memorys_step_is_compiled_once_for_reports_of_every_length() -> None:
    """Two programs at most: the memory before the first word is laid out differently."""
    programs = []
    memory = RelationalMemory(16, slots=3, heads=4).train()
    attend_without_dropout(memory)
    lengths_of_batches = [9, 7, 5, 3, 1], [12, 6, 2], [4, 4, 4, 4]
    plain = [_trained(memory, words) for words in lengths_of_batches]
    torch._dynamo.reset()
    memory.compile_step(lambda program, _: programs.append(program) or program)
    for words, (loss, gradient) in zip(lengths_of_batches, plain, strict=True):
        torch.testing.assert_close(_trained(memory, words), (loss, gradient))
    assert 1 <= len(programs) <= 2
    with torch.no_grad():
        memory.eval()
        memory(torch.zeros(2, 16), memory.initial(2), torch.tensor([2]))
    assert len(programs) <= 2, "decoding is not compiled"
    torch._dynamo.reset()


def _trained(memory: RelationalMemory, words: list[int]) -> tuple[Tensor, Tensor]:
    """Returns the sum of all memories, and a gradient of it."""
    generator = torch.Generator().manual_seed(sum(words))
    packing = Packing.from_lengths(words, torch.device("cpu"))
    memory.zero_grad()
    states = memory(
        torch.randn(sum(words), 16, generator=generator), memory.initial(len(words)), packing.running
    )
    states.sum().backward()
    gradient = memory.U.weight.grad
    assert gradient is not None
    return states.sum().detach(), gradient.clone()


@pytest.mark.usefixtures("by_program")
def test_the_memorys_step_is_compiled_by_itself_on_a_gpu_alone(on: Callable[[str], None]) -> None:
    for mode, device, is_compiled in [
        ("default", "cuda", True),
        ("default", "cpu", False),
        ("reduce-overhead", "cuda", False),
        ("off", "cuda", False),
    ]:
        on(device)
        config = tiny(compile=mode)
        model = R2Gen(config, 20)
        compiled(model, config)
        assert (model.encoder_decoder.model.rm._compiled_step is not None) is is_compiled, (mode, device)


@pytest.mark.parametrize(
    ("device", "settings", "expected"),
    [
        ("cpu", {"compile": "default", "micro_batch_size": 4}, [4, 3, 2]),
        ("cpu", {"compile": "reduce-overhead", "micro_batch_size": 4}, [4]),
        ("cpu", {"compile": "max-autotune", "micro_batch_size": 4}, [4]),
        ("cpu", {"compile": "reduce-overhead", "micro_batch_size": 4, "accumulation_steps": 2}, [4, 3, 2]),
        ("cuda", {"compile": "default", "micro_batch_size": 4}, [4]),
        ("cpu", {"compile": "default", "micro_batch_size": 1}, [1]),
    ],
)
def test_a_batch_that_would_need_another_program_is_computed_eagerly(
    on: Callable[[str], None],
    by_program: list[int],
    device: str,
    settings: dict[str, Any],
    expected: list[int],
) -> None:
    on(device)
    config = tiny(**settings)
    model = mock.MagicMock(return_value=None)
    forward = compiled(model, config)
    for studies in range(config.micro_batch_size, 0, -1):
        forward(torch.zeros(studies, 1, 1), torch.zeros(studies, 2), None)
    assert by_program == expected
