"""Options are put into command lines in the spelling that they had."""

from collections.abc import Mapping

import pytest

from autotune.core.settings import Setting
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
    assert options.ends([epochs, warmup, steps]) == [("steps", [steps, warmup]), ("epochs", [epochs])]
    endless = Option("max_steps", "--max_steps {}", -1)
    assert options.ends([epochs, endless]) == [("epochs", [epochs])]
    assert options.ends([endless]) == []


def test_names_of_a_script_are_options_only_if_its_line_sets_one() -> None:
    names = {"lr": 0.1, "batch_size": 4}
    assert options.of_names(names, ["python", "train.py", "--other=1"]) == []
    (lr, _) = options.of_names(names, ["python", "train.py", "--batch_size=4"])
    assert lr.form == "--lr={}"
    assert options.of_names(names, ["python", "train.py", "--batch_size=8"]) == [], (
        "it does not have that value"
    )


_TRAINER: dict[str, Setting] = {"per_device_train_batch_size": 8, "seed": 42, "precision": "bf16"}


def _parsed(values: Mapping[str, Setting]) -> list[Option]:
    return [Option(name, f"--{name} {{}}", value, (f"--{name}",)) for name, value in values.items()]


def test_the_arguments_of_a_trainer_are_flags_where_the_script_takes_them() -> None:
    inside = [Option(f"trainer.{name}", "", value) for name, value in _TRAINER.items()]
    parsed = _parsed({**_TRAINER, "seed": 7, "precision": "high", "bf16": None, "fp16": False, "tf32": None})
    found = {one.name: one for one in options.said_by_flags(inside, parsed)}
    assert list(found) == ["per_device_train_batch_size", "trainer.seed", "precision"]
    assert found["per_device_train_batch_size"].form == "--per_device_train_batch_size {}"
    assert found["trainer.seed"].is_inside, "the script's own option is another one"
    assert dict(found["precision"].by_value)["bf16"] == "--bf16 True --fp16 False"
    assert dict(found["precision"].by_value)["tf32"] == "--bf16 False --fp16 False --tf32 True"
    constants = [Option(name, "", value, file="train.py") for name, value in _TRAINER.items()]
    assert list(options.said_by_flags(inside, constants)) == inside
