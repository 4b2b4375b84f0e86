"""Scores are found in lines, tables and logs that trainings wrote."""

import re
from dataclasses import replace

import pytest

from autotune.probe import scores
from autotune.probe.options import Option
from autotune.probe.watching import Watched, WatchedStep


def _printed(*lines: str, steps: int = 100) -> Watched:
    step = WatchedStep(0.0, (0.1,), 1, (4, 2), "float32", None)
    return Watched(lines=tuple((text, 0.0) for text in lines), steps=(step,) * steps)


@pytest.mark.parametrize(
    ("lines", "name", "values", "minimize"),
    [
        (
            ["step 0: train loss 4.2, val loss 4.19", "step 250: train loss 2.1, val loss 2.22"],
            "val_loss",
            (4.19, 2.22),
            True,
        ),
        (
            [
                "| end of epoch   1 | time: 12.00s | valid loss  5.55 | valid ppl   257.24",
                "| end of epoch   2 | time: 12.00s | valid loss  5.10 | valid ppl   164.02",
            ],
            "val_loss",
            (5.55, 5.10),
            True,
        ),
        (
            [
                "train final score: 17/500 = 3.40% correct",
                "test final score: 43/500 = 8.60% correct",
                "test final score: 91/500 = 18.20% correct",
            ],
            "test_score",
            (8.6, 18.2),
            False,
        ),
        (
            [
                "Train Epoch 1, Loss: 2.0",
                "Val Epoch 1, Loss: 2.5",
                "Train Epoch 2, Loss: 1.0",
                "Val Epoch 2, Loss: 2.25",
            ],
            "val_loss",
            (2.5, 2.25),
            True,
        ),
        (["Epoch: 1000 cost = 0.5", "Epoch: 2000 cost = 0.25"], "cost", (0.5, 0.25), True),
        (["Validation BLEU-4: 0.12", "Validation BLEU-4: 0.14"], "val_bleu_4", (0.12, 0.14), False),
        (
            [
                "Epoch: 001, Loss: 1.9465, Train: 0.1429, Val: 0.1440, Test: 0.1570",
                "Epoch: 002, Loss: 1.9412, Train: 0.3000, Val: 0.2160, Test: 0.2210",
            ],
            "val",
            (0.144, 0.216),
            None,
        ),
        (
            ["{'eval_loss': 3.5, 'epoch': 1.0}", "{'eval_loss': 3.1, 'epoch': 2.0}"],
            "eval_loss",
            (3.5, 3.1),
            True,
        ),
    ],
)
def test_a_printed_score_is_found_with_a_pattern_that_finds_it_again(
    lines: list[str], name: str, values: tuple[float, ...], minimize: bool | None
) -> None:
    (score,) = scores.scores(_printed(*lines))
    assert (score.name, score.values, score.minimize) == (name, values, minimize)
    found = [float(match[1]) for line in lines if (match := re.search(score.pattern, line))]
    assert tuple(found) == values


def test_a_loss_of_the_training_is_no_score_beside_an_evaluation() -> None:
    told = scores.scores(_printed("loss 3.0", "loss 2.0", "test accuracy 0.1", "test accuracy 0.2"))
    assert [one.name for one in told] == ["test_accuracy"]


def test_a_score_of_no_evaluation_is_a_question() -> None:
    line = "[0/2][{}/16] Loss_D: {}.5 Loss_G: {}.25"
    told = scores.scores(_printed(*(line.format(n, n, n) for n in range(3))))
    assert [(one.name, one.values) for one in told] == [
        ("loss_d", (0.5, 1.5, 2.5)),
        ("loss_g", (0.25, 1.25, 2.25)),
    ]
    assert not scores.is_clear(told[:1])


def test_scores_that_stay_the_same_are_not_offered() -> None:
    assert scores.scores(_printed("val acc 0.0", "val acc 0.0")) == []
    assert (
        scores.scores(_printed("val acc 0.5", "val acc 0.5", "val loss 2", "val loss 1"))[0].name
        == "val_loss"
    )


def test_validation_scores_precede_test_scores_and_tables_precede_output() -> None:
    table = "epoch,eval_top1,train_loss\n0,11.0,2\n1,27.0,1\n"
    seen = Watched(
        lines=(("Test: Acc@1: 6.25 (11.0)", 0.0), ("Test: Acc@1: 0.00 (27.0)", 0.0)),
        tables={"output/20260101-101500-resnet/summary.csv": table},
    )
    (score,) = scores.scores(seen)
    assert (score.name, score.kind, score.values) == ("eval_top1", "csv", (11.0, 27.0))
    assert score.place == "output/*-resnet/summary.csv", "another run has another time in its path"


def test_what_is_logged_is_a_score() -> None:
    seen = Watched(
        logged=(("tensorboard", "runs/a", "val/loss", 2.0), ("tensorboard", "runs/a", "val/loss", 1.0))
    )
    (score,) = scores.scores(seen)
    assert (score.name, score.kind, score.place, score.pattern) == (
        "val_loss",
        "tensorboard",
        "runs/a",
        "val/loss",
    )


def test_several_scores_of_one_evaluation_are_not_clear() -> None:
    told = scores.scores(_printed("val loss 2, val acc 0.1", "val loss 1, val acc 0.2"))
    assert not scores.is_clear(told)
    assert scores.named(told, "val_acc") in told
    assert scores.is_clear(told[:1])


def test_a_setting_that_a_script_prints_is_no_score() -> None:
    printed = _printed("{'top-k': -1, 'seed': 3407}", "step 0 | loss 3.5", "step 10 | loss 2.9")
    assert [one.name for one in scores.scores(printed)] == ["top_k", "loss"]
    known = (Option("top_k", "--top-k {}", -1),)
    assert [one.name for one in scores.scores(replace(printed, options=known))] == ["loss"]


def test_what_an_evaluation_costs_is_no_score() -> None:
    values = {"eval_loss": 1.6, "eval_runtime": 0.1, "eval_samples_per_second": 9.2, "eval_num_tokens": 75.0}
    logged = tuple(("reported", "", name, value) for name, value in values.items())
    assert [one.name for one in scores.scores(Watched(logged=logged))] == ["eval_loss"]
