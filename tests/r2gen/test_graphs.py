"""Steps replayed from CUDA graphs compute what the same steps compute without them.

Without a GPU, a stand-in has what matters of a recording: its gradients are always in the same memory.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from r2gen import graphs, precision
from r2gen.config import Config
from r2gen.data import Batch, normalise, padded
from r2gen.errors import InputError
from r2gen.model import R2Gen
from r2gen.optim import Position
from r2gen.packing import Packing, lengths
from r2gen.step import Stepper
from tests.tiny_r2gen import attend_without_dropout

from .golden import tiny

WINDOWS = ([[9, 7, 5, 3]], [[12, 6, 2, 1], [4, 4, 4, 4]], [[8, 3]], [[5, 5, 2, 7], [6, 1]])
STILL = {"dropout": 0.0, "drop_prob_lm": 0.0, "micro_batch_size": 4, "max_seq_length": 20}


class _StandIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Callable[[], Tensor], memory: list[Tensor], *parameters: Tensor) -> Tensor:
        with torch.enable_grad():
            ctx.out, ctx.memory, ctx.parameters = run(), memory, parameters
        return ctx.out.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        found = torch.autograd.grad(ctx.out, ctx.parameters, gradients)
        for own, one in zip(ctx.memory, found, strict=True):
            own.copy_(one)
        return None, None, *(own.detach() for own in ctx.memory)


class _Recorder:
    """Records and replays without a GPU; the number of studies in each recording, and in each replay."""

    def __init__(self) -> None:
        self.recordings: list[int] = []
        self.replays: list[int] = []
        self.fits = 4  # studies

    def __call__(self, whole: nn.Module, first: tuple[Tensor, ...], room_bytes: int) -> Callable[..., Tensor]:
        self.recordings.append(len(first[0]))
        if len(first[0]) > self.fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        coming_bytes = 0 if self.replays else 3 * 4 * sum(p.numel() for p in _trained_of(whole))
        assert room_bytes == coming_bytes, "of Adam with AMSGrad, until its state is there"
        replay = _replay(whole, first)

        def counted(*batch: Tensor) -> Tensor:
            self.replays.append(len(batch[0]))
            return replay(*batch)

        return counted


def _trained_of(whole: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in whole.parameters() if parameter.requires_grad]


def _replay(whole: nn.Module, first: tuple[Tensor, ...]) -> Callable[..., Tensor]:
    parameters = _trained_of(whole)
    memory = [torch.zeros_like(parameter) for parameter in parameters]

    def replay(*batch: Tensor) -> Tensor:
        assert [one.shape for one in batch] == [one.shape for one in first]
        out: Tensor = _StandIn.apply(lambda: whole(*batch), memory, *parameters)
        return out

    return replay


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Recorder]:
    made = _Recorder()
    if not torch.cuda.is_available():
        monkeypatch.setattr(graphs, "_record", made)
    with precision.backends(tiny(precision="fp32")):
        yield made


def _trained(config: Config, *, is_tight: bool = False) -> tuple[list[list[float]], dict[str, Tensor]]:
    """Trains on all windows; returns each step's loss and norm, and the model's values at the end.

    If memory `is_tight`, none is left beside a recording for an incomplete batch.
    """
    torch.manual_seed(0)
    model = R2Gen(config, 20).to(precision.device()).train()
    attend_without_dropout(model)
    stepper = Stepper(model, config)

    def refuse(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        if is_tight and len(given[0]) < config.micro_batch_size and stepper._recorded:
            raise torch.OutOfMemoryError("CUDA out of memory")

    model.register_forward_pre_hook(refuse)
    generator, figures = torch.Generator().manual_seed(1), []
    for number, window in enumerate(WINDOWS):
        batches = [_batch(config, words, generator) for words in window]
        gradients = stepper.gradients(batches)
        record = stepper.update(gradients, Position(1, 0, 4, 100), number)
        figures.append([record["train_loss"], record["grad_norm"]])
    return figures, model.state_dict()


def _batch(config: Config, words: list[int], generator: torch.Generator) -> Batch:
    shape = (len(words), config.views, config.image_size, config.image_size)  # grey
    images = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
    return Batch(images, padded([[0, *[3] * count, 0] for count in words]), torch.arange(len(words)), ())


@pytest.mark.parametrize("settings", [{}, {"activation_checkpointing": True}, {"freeze_visual": True}])
def test_steps_are_those_of_a_training_without_graphs(recorder: _Recorder, settings: dict[str, Any]) -> None:
    """Also over accumulated micro-batches, whose gradients add up, and incomplete ones."""
    config = tiny(**STILL, **settings)
    eager, weights = _trained(config)
    recorded, own = _trained(config.model_copy(update={"compile": "cuda-graphs"}))
    torch.testing.assert_close(torch.tensor(recorded), torch.tensor(eager), rtol=1e-3, atol=1e-5)
    for name in weights:
        if "running" in name or "num_batches" in name:
            torch.testing.assert_close(own[name], weights[name], rtol=1e-3, atol=1e-3)
    if not torch.cuda.is_available():
        assert (recorder.recordings, recorder.replays) == ([4], [4, 4, 4, 4])


@pytest.mark.skipif(torch.cuda.is_available(), reason="the stand-in runs out of memory")
def test_a_recording_that_does_not_fit_is_made_of_smaller_batches(recorder: _Recorder) -> None:
    recorder.fits = 2
    config = tiny(**STILL, compile="cuda-graphs")
    halved, _ = _trained(config)
    smaller, _ = _trained(tiny(**STILL | {"micro_batch_size": 2, "accumulation_steps": 2}))
    torch.testing.assert_close(torch.tensor(halved), torch.tensor(smaller), rtol=1e-3, atol=1e-3)
    assert recorder.recordings == [4, 2]
    assert set(recorder.replays) == {2}


@pytest.mark.skipif(torch.cuda.is_available(), reason="the stand-in runs out of memory")
def test_an_incomplete_batch_without_room_beside_the_recording_is_trained_without_it(
    recorder: _Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    eager, _ = _trained(tiny(**STILL))
    found, _ = _trained(tiny(**STILL, compile="cuda-graphs"), is_tight=True)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(eager), rtol=1e-3, atol=1e-5)
    assert recorder.recordings == [4, 4], "the whole batches of the next step are recorded again"
    assert capsys.readouterr().err == "", "nothing was halved"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.usefixtures("recorder")
def test_recording_leaves_the_random_numbers_as_they_are() -> None:
    config = tiny(**{**STILL, "dropout": 0.5}, compile="cuda-graphs")
    model = R2Gen(config, 20).cuda().train()
    forward, generator = graphs.Recorded(model, config, 4, 0), torch.Generator().manual_seed(1)
    batch = _batch(config, [9, 7, 5, 3], generator)
    torch.cuda.manual_seed(3)
    images, targets = normalise(batch.images.cuda()), batch.targets.cuda()
    packing = Packing.from_lengths(lengths(batch.targets), images.device)
    first = forward(images, targets, packing).detach().clone()
    torch.cuda.manual_seed(3)
    torch.testing.assert_close(forward(images, targets, packing), first)
    assert not torch.allclose(forward(images, targets, packing), first), "dropout is drawn anew"


def test_a_machine_without_a_gpu_refuses_graphs_in_one_line() -> None:
    with pytest.raises(InputError, match="compile cuda-graphs: needs a CUDA device; off runs here"):
        precision.check(tiny(compile="cuda-graphs"), None)
