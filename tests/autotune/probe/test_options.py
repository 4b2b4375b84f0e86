"""Options are put into command lines in the spelling that they had."""

import pytest

from autotune.probe import options
from autotune.probe.options import Option

_LR = Option("lr", "--lr {}", 0.1, ("--lr", "-l"))
_SWITCH = Option("compile", "--compile", False, ("--compile",))
_NAME = Option("lr", "--lr={}", 0.1)
_HYDRA = Option("optim.lr", "optim.lr={}", 0.1)


@pytest.mark.parametrize(
    ("words", "option", "text", "expected"),
    [
        ("train.py --lr 0.1 -x", _LR, "0.2", "train.py --lr 0.2 -x"),
        ("train.py -l 0.1", _LR, "0.2", "train.py -l 0.2"),
        ("train.py --lr=0.1", _LR, "0.2", "train.py --lr=0.2"),
        ("train.py --lr 1 --lr 0.1", _LR, "0.2", "train.py --lr 1 --lr 0.2"),
        ("train.py", _LR, "0.2", "train.py --lr 0.2"),
        ("train.py", _SWITCH, "True", "train.py --compile"),
        ("train.py --compile -x", _SWITCH, None, "train.py -x"),
        ("train.py --lr=0.1", _NAME, "0.2", "train.py --lr=0.2"),
        ("train.py --lr_decay=5", _NAME, "0.2", "train.py --lr_decay=5 --lr=0.2"),
        ("train.py optim.lr=1", _HYDRA, "{optim.lr}", "train.py optim.lr={optim.lr}"),
    ],
)
def test_a_value_is_put_in_place(words: str, option: Option, text: str | None, expected: str) -> None:
    assert options.put(words.split(), option, text) == expected.split()


def test_a_line_is_quoted_for_a_shell_except_placeholders() -> None:
    assert (
        options.line(["train.py", "--name=two words", "--lr={lr}"]) == "train.py '--name=two words' --lr={lr}"
    )


def test_steps_end_a_training_before_epochs_do() -> None:
    steps, epochs = Option("max_steps", "--max_steps {}", 100), Option("epochs", "--epochs {}", 3)
    warmup = Option("warmup_steps", "--warmup_steps {}", 10)
    assert options.ends([epochs, warmup, steps]) == ("steps", [steps, warmup])
    endless = Option("max_steps", "--max_steps {}", -1)
    assert options.ends([epochs, endless]) == ("epochs", [epochs])
    assert options.ends([endless]) is None


def test_names_of_a_script_are_options_only_if_its_line_sets_one() -> None:
    names = {"lr": 0.1, "batch_size": 4}
    assert options.of_names(names, ["python", "train.py", "--other=1"]) == []
    (lr, _) = options.of_names(names, ["python", "train.py", "--batch_size=4"])
    assert lr.form == "--lr={}"
    assert options.of_names(names, ["python", "train.py", "--batch_size=8"]) == [], (
        "it does not have that value"
    )
