"""A step with a non-finite loss changes nothing; too many in a row end the run at its last good state."""

import math
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from r2gen import checkpoint, precision
from r2gen.config import Config, parse
from r2gen.errors import DivergedError
from r2gen.metrics import OptionalMeteor
from r2gen.train import _Trainer, fit
from tests.r2gen.faults import spoil

pytestmark = pytest.mark.usefixtures("without_java")

WILD = {"learning_rate": 1e30}


def _trainer(config: dict[str, Any], workdir: Path) -> _Trainer:
    return _Trainer(parse(config), workdir, OptionalMeteor())


def _state(trainer: _Trainer) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("allowed", [0, 2, 3])
def test_too_many_bad_steps_end_the_run_and_keep_the_last_good_checkpoint(
    tiny: dict[str, Any], tmp_path: Path, allowed: int
) -> None:
    """At this learning rate the first update ruins the weights."""
    config = {**tiny, **WILD, "max_bad_steps": allowed, "checkpoint_every_steps": 1, "epochs": 9}
    records: list[dict[str, Any]] = []
    with pytest.raises(DivergedError, match=r"the loss is \S+, its gradient's norm \S+ at step 2, epoch 1"):
        records.extend(fit(config, tmp_path))

    state = checkpoint.load(tmp_path / "last.pt")
    assert state["step"] == 1
    assert all(bool(value.isfinite().all()) for value in state["model"].values())
    assert not (tmp_path / "best.pt").exists()
    with pytest.raises(DivergedError, match="at step 2, epoch 1"):
        list(fit(config, tmp_path))


def test_bad_steps_are_counted_in_their_records(tiny: dict[str, Any], tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    config = {**tiny, **WILD, "eval_every_samples": 10**6, "epochs": 9}
    with pytest.raises(DivergedError, match="and no better in the 3 steps after it: lower the learning rate"):
        records.extend(fit(config, tmp_path))

    assert [record["bad_steps"] for record in records] == [0, 1, 2, 3]
    assert [math.isfinite(record["train_loss"]) for record in records] == [True, False, False, False]
    assert [record["step"] for record in records] == [1, 2, 3, 4]


def test_a_bad_step_does_not_change_the_model_and_training_continues(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    trainer = _trainer(tiny, tmp_path)
    spoil(trainer.model, {2})
    run = trainer.run()
    next(run)
    before = _state(trainer)

    assert math.isnan(next(run)["train_loss"])
    assert _same(before, _state(trainer))
    assert all(parameter.grad is None for parameter in trainer.model.parameters())

    following = next(run)
    assert following["bad_steps"] == 0
    assert math.isfinite(following["train_loss"])
    assert not _same(before, _state(trainer))


def test_good_steps_between_bad_ones_end_the_row(tiny: dict[str, Any], tmp_path: Path) -> None:
    trainer = _trainer({**tiny, "max_bad_steps": 1}, tmp_path)
    spoil(trainer.model, {1, 3, 5})
    counts = [record["bad_steps"] for record in trainer.run() if "bad_steps" in record]
    assert counts == [1, 0, 1, 0, 1, 0]


def test_no_checkpoint_is_written_in_a_row_of_bad_steps_and_one_is_after_it(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    trainer = _trainer({**tiny, "checkpoint_every_steps": 1}, tmp_path)
    spoil(trainer.model, {2, 3})
    run = trainer.run()
    list(islice(run, 4))  # three steps and the evaluation after them
    trainer.save_if_changed()
    assert checkpoint.load(tmp_path / "last.pt")["step"] == 1
    assert not (tmp_path / "best.pt").exists()
    list(islice(run, 2))
    assert checkpoint.load(tmp_path / "last.pt")["step"] == 4


def test_weights_that_an_update_has_spoilt_are_not_written(tiny: dict[str, Any], tmp_path: Path) -> None:
    trainer = _trainer(tiny, tmp_path)
    next(trainer.run())
    with torch.no_grad():
        trainer.model.encoder_decoder.logit.bias[0] = math.inf
    trainer.save_if_changed()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("factor", "is_bad"), [(math.nan, True), (math.inf, False)])
def test_a_gradient_that_is_no_number_is_left_out_and_an_infinite_one_is_clipped(
    tiny: dict[str, Any], tmp_path: Path, factor: float, is_bad: bool
) -> None:
    trainer = _trainer(tiny, tmp_path)
    weight = trainer.model.encoder_decoder.logit.weight
    weight.register_hook(lambda gradient: torch.full_like(gradient, factor))
    before = _state(trainer)

    record = next(trainer.run())

    assert record["bad_steps"] == int(is_bad)
    assert not math.isfinite(record["grad_norm"])
    assert _same(before, _state(trainer)) is is_bad
    assert bool(weight.isfinite().all())


def test_an_overflow_in_fp16_is_bad_only_if_no_scale_is_to_blame(
    make_config: Callable[..., Config],
) -> None:
    scaler = precision.Scaler(make_config(precision="fp16"))
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    verdicts = []
    for _ in range(18):
        weight.grad = scaler.scale(torch.tensor([1.0])) * math.inf
        scaler.unscale(optimizer)
        verdicts.append(scaler.is_bad(math.inf))
        scaler.step(optimizer)
    assert verdicts == [False] * 17 + [True]  # from 2^16 down to 1, then a half
    assert weight.item() == 1
    assert not scaler.is_bad(1.0)


def test_a_step_left_out_lowers_the_scale_and_the_next_one_can_be_taken(
    make_config: Callable[..., Config],
) -> None:
    scaler = precision.Scaler(make_config(precision="fp16"))
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    for gradient in (math.nan, 0.5):
        weight.grad = scaler.scale(torch.tensor([1.0])) * gradient
        scaler.unscale(optimizer)
        if math.isnan(gradient):
            scaler.skip()
        else:
            scaler.step(optimizer)
    assert weight.item() == 0.5
    assert scaler.state_dict()["scale"] == 2.0**15


def test_a_run_that_ends_in_a_row_of_bad_steps_with_a_spoilt_model_has_diverged(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    """Only three steps, and fewer bad ones in a row than allowed, but the final model has no finite loss."""
    with pytest.raises(DivergedError, match="at step 2, epoch 1"):
        list(fit({**tiny, **WILD, "epochs": 1}, tmp_path))


@pytest.mark.parametrize("every", [None, 4])
def test_a_run_that_ends_in_a_row_of_bad_steps_with_a_sound_model_is_kept(
    tiny: dict[str, Any], tmp_path: Path, every: int | None
) -> None:
    """Bad steps do not change the model. The last evaluation ends an epoch, or follows it."""
    trainer = _trainer({**tiny, "epochs": 1, "eval_every_samples": every}, tmp_path)
    spoil(trainer.model, {2, 3})
    records = list(trainer.run())
    assert [r["bad_steps"] for r in records if "bad_steps" in r] == [0, 1, 2]
    assert math.isfinite(records[-1]["val_loss"])
    last = checkpoint.load(tmp_path / "last.pt")
    assert (last["step"], last["samples"], last["evaluation"]) == (3, 10, records[-1])
    assert _same(checkpoint.load(tmp_path / "best.pt")["model"], _state(trainer))
