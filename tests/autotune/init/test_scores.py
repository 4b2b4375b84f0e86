"""The quality in what a script prints: its name, its direction, and a pattern that finds it there."""

import re
from pathlib import Path

import pytest

from autotune.init import scores, syntax
from autotune.init.options import Option
from autotune.init.sources import Source


def found(text, options=()):
    return scores.scores([Source(Path("train.py"), syntax.parsed(text))], options)


@pytest.mark.parametrize(
    ("code", "printed", "name", "value", "minimize"),
    [
        (
            "print(f\"step {i}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}\")",
            "step 20: train loss 2.1034, val loss 1.9876",
            "val_loss",
            "1.9876",
            True,
        ),
        (
            "print('\\nTest set: Average loss: {:.4f}, Accuracy: {}/{} ({:.0f}%)'.format(l, c, len(d), p))",
            "Test set: Average loss: 0.0312, Accuracy: 9890/10000 (99%)",
            "test_accuracy",
            "9890",
            False,
        ),
        (
            "logger.info('epoch %d | valid ppl %.2f | valid bpc %.3f', e, p, b)",
            "epoch 3 | valid ppl 105.31 | valid bpc 6.718",
            "val_ppl",
            "105.31",
            True,
        ),
        ("def evaluate():\n    print('F1:', f1)", "F1: 0.75", "eval_f_1", "0.75", False),
        ("print('validation error = ' + str(err))", "validation error = 1e-05", "val_error", "1e-05", True),
        ("print('dev BLEU-4 %(bleu).3f' % scores)", "dev BLEU-4 0.161", "dev_bleu_4", "0.161", False),
        (
            "print(f\"Accuracy of the network on the {len(data)} test images: {stats['acc1']:.1f}%\")",
            "Accuracy of the network on the 5000 test images: 83.1%",
            "test_acc",
            "83.1",
            False,
        ),
        (
            "def test():\n    print('===> Avg. PSNR: {:.4f} dB'.format(total / len(loader)))",
            "===> Avg. PSNR: 23.1543 dB",
            "test_psnr",
            "23.1543",
            False,
        ),
        ("print(f'val_loss={loss}')", "val_loss=nan", "val_loss", "nan", True),
    ],
)
def test_the_quality_that_is_printed(code, printed, name, value, minimize):
    score = found(code)[0]
    assert (score.name, score.minimize) == (name, minimize)
    match = re.search(score.pattern, printed)
    assert match is not None
    assert match[1] == value


@pytest.mark.parametrize(
    "code",
    [
        "print(f'train loss {loss}')",
        "print('done')",
        "print(f'epoch {epoch} took {seconds} s')",
        "print(f'reading {path} for validation')",
        "print(val_loss)",
        "print('%' % ())",
        "print('{' .format(loss))",
    ],
)
def test_what_is_no_quality(code):
    assert found(code) == []


def test_validation_comes_before_a_test_and_a_best_so_far_last():
    code = "print(f'test acc {a}')\nprint(f'best val acc {b}')\nprint(f'val acc {c}')\nprint(f'loss {l}')"
    assert found(code)[0].place == "train.py:3"
    assert "loss" not in {score.name for score in found(code)}


def test_a_label_that_another_line_has_too_is_found_with_all_that_stands_before_it():
    code = "print(f'Epoch {e} loss: {l}')\ndef evaluate():\n    print(f'Validation of {e} loss: {l}')"
    score = found(code)[0]
    assert score.name == "val_loss"
    assert re.search(score.pattern, "Epoch 3 loss: 1.5") is None
    assert re.search(score.pattern, "Validation of 3 loss: 1.25")[1] == "1.25"


def test_pairs_of_names_and_values_have_the_name_that_an_option_says():
    code = (
        "log = {'val_' + k: v for k, v in m}\n"
        "for key, value in log.items():\n    print('{:15s}: {}'.format(key, value))"
    )
    options = [Option("monitor_metric", "--monitor_metric {}", "BLEU_4"), Option("monitor_mode", "", "max")]
    (score,) = found(code, options)
    assert (score.name, score.minimize, score.guessed) == ("val_bleu_4", False, True)
    assert re.search(score.pattern, "\tval_BLEU_4     : 0.1034")[1] == "0.1034"


def test_what_lightning_logs_is_found_by_its_column():
    tree = syntax.parsed('self.log("val/acc", a)\nself.log("train/acc", a)\nself.log_dict({"val/loss": b})')
    named = scores.logged([Source(Path("module.py"), tree)])
    assert [(one.name, one.pattern, one.minimize) for one in named] == [
        ("val_acc", "val/acc", False),
        ("val_loss", "val/loss", True),
    ]
