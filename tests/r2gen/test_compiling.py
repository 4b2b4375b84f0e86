"""A model compiled once handles every batch: a later compilation would distort the measured speed."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from r2gen.compiling import compiled
from r2gen.config import Config
from r2gen.data import padded
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


def _batch(config: Config, words: list[int]) -> tuple[Tensor, Tensor, Packing]:
    """Returns images, or features of a frozen extractor, and reports of the given lengths in words."""
    size = config.image_size
    shape = (6, 512) if config.freeze_visual else (config.views, 3, size, size)
    targets = padded([[0, *[3] * count, 0] for count in words])
    packing = Packing.from_lengths(lengths(targets), torch.device("cpu"))
    return torch.randn(len(words), *shape), targets, packing


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("mode", "micro_batch_size", "by_program"),
    [
        ("default", 4, [4, 3, 2]),
        ("reduce-overhead", 4, [4]),
        ("max-autotune", 4, [4]),
        ("default", 1, [1]),
    ],
)
def test_a_batch_that_would_need_another_program_is_computed_eagerly(
    monkeypatch: pytest.MonkeyPatch, mode: str, micro_batch_size: int, by_program: list[int]
) -> None:
    config, seen = tiny(compile=mode, micro_batch_size=micro_batch_size), []
    monkeypatch.setattr(torch, "compile", lambda *_, **__: lambda images, *_: seen.append(len(images)))
    forward = compiled(lambda *_: None, config)
    for studies in range(micro_batch_size, 0, -1):
        forward(torch.zeros(studies, 1, 1), torch.zeros(studies, 2), None)
    assert seen == by_program
