"""A training's progress as printed lines."""

import math
from typing import Any

import pytest

from r2gen.progress import Lines


class _Clock:
    """A clock that only moves when it is advanced."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


def _step(samples: int, loss: float, epoch: int = 1) -> dict[str, Any]:
    bad = 0 if math.isfinite(loss) else 1
    return {
        "samples": samples,
        "epoch": epoch,
        "step": 1,
        "train_loss": loss,
        "grad_norm": 1,
        "bad_steps": bad,
    }


def _evaluation(samples: int, epoch: int = 1) -> dict[str, Any]:
    scores = {"bleu_4": 0.25, "bleu_4_chance": 0.2, "val_loss": 2.5, "collapsed": False}
    return {"samples": samples, "epoch": epoch, **scores}


def test_an_epoch_is_summed_up_without_its_evaluations_and_without_getting_ready(
    clock: _Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = Lines(clock.monotonic)
    for seconds, record in (
        (50.0, _step(4, 3.0)),
        (0.5, _step(8, math.nan)),
        (0.5, _step(12, 2.0)),
        (30.0, _evaluation(12)),
        (0.5, _step(16, 1.0)),
        (0.5, _step(20, 1.0, epoch=2)),
    ):
        clock.now_s += seconds
        lines.record(record)

    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch 1: ")]
    assert told == ["epoch 1: 1.5 s of training, 8.0 samples/s, mean loss 2.0000"]
    lines.end_epoch()
    assert capsys.readouterr().out == "epoch 2: 0.5 s of training, 8.0 samples/s, mean loss 1.0000\n"


def test_an_epoch_without_a_step_here_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """A resumed run begins with its last evaluation."""
    lines = Lines()
    lines.record(_evaluation(12))
    lines.record(_step(16, 1.0, epoch=2))
    lines.end_epoch()
    assert "epoch 1: " not in capsys.readouterr().out


def test_the_first_step_of_all_has_no_speed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    lines.record(_step(16, 1.0))
    lines.end_epoch()
    assert capsys.readouterr().out == "epoch 1: mean loss 1.0000\n"


@pytest.mark.parametrize(
    ("collapsed", "share", "said"),
    [
        (False, 0.25, "samples: bleu_4 0.5000 (chance 0.4200)\n"),
        (True, 1 / 32, "; 1 distinct report of 32: the model writes the same whatever it sees\n"),
        (True, 5 / 32, "; 5 distinct reports of 32: what the model writes hardly depends on what it sees\n"),
    ],
)
def test_a_collapse_is_printed_in_words(
    capsys: pytest.CaptureFixture[str], collapsed: bool, share: float, said: str
) -> None:
    record = {"epoch": 3, "samples": 576, "val_studies": 32, "bleu_4": 0.5, "bleu_4_chance": 0.42}
    Lines().record({**record, "collapsed": collapsed, "distinct_reports": share})
    assert capsys.readouterr().out.endswith(said)
