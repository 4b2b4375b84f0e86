"""The changes that the hook can make to a model are offered on a GPU, where they pay off."""

from dataclasses import replace

import pytest

from autotune.probe import effects
from autotune.probe.watching import Watched, WatchedStep


def _seen(device: str, dtype: str = "float32", *, compiled: bool = False) -> Watched:
    step = WatchedStep(at_s=0.0, rates=(), passes=1, shape=(8, 4), dtype=dtype, loss=1.0)
    return Watched(steps=(step,), device=device, compiled=compiled)


def _candidates(seen: Watched) -> dict[str, object]:
    return {one.option.name: one.tried for one in effects.candidates(effects.inside(seen), seen)}


def test_precision_and_compilation_are_tried_on_a_gpu():
    assert _candidates(_seen("cuda")) == {"model.precision": "bf16", "model.compile": "default"}
    assert _candidates(_seen("cpu")) == {}


def test_what_the_script_does_itself_is_left_alone():
    assert _candidates(_seen("cuda", "bfloat16")) == {"model.compile": "default"}
    assert _candidates(_seen("cuda", compiled=True)) == {"model.precision": "bf16"}


def test_a_step_has_the_passes_of_the_second_one() -> None:
    (one,) = _seen("cpu").steps
    by_hand = Watched(steps=(replace(one, passes=10), one, one))
    assert effects.samples_of_step(by_hand) == 8


def test_a_gpu_has_tf32_as_a_choice():
    seen = _seen("cuda")
    tried = effects.candidates(effects.inside(seen), seen)
    precision = next(one for one in tried if one.role == "precision")
    assert precision.words["tf32"] == "tf32"


@pytest.mark.parametrize(
    ("rows", "launched", "shares"),
    [(4, 2, True), (8, 2, False), (8, 1, False), (2, 2, False), (1, 8, False)],
)
def test_processes_share_a_batch_if_each_trains_its_part_of_it(rows, launched, shares):
    step = WatchedStep(at_s=0.0, rates=(), passes=1, shape=(rows, 4), dtype="float32", loss=1.0)
    seen = Watched(steps=(step,), loader={"batch_size": 8})
    assert effects.shares_batch(seen, launched) is shares
