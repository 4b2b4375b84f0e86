"""Trained models from checkpoints, ours and the original's, on the command line."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from r2gen import checkpoint
from r2gen.__main__ import main
from r2gen.config import parse
from r2gen.errors import InputError
from r2gen.restore import restore
from r2gen.train import fit

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def trained(tiny: dict[str, Any], tmp_path: Path) -> Path:
    records = fit(tiny, tmp_path / "run")
    list(islice(records, 2))
    records.close()
    return tmp_path / "run" / "last.pt"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process; returns its exit code and output."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return call


def test_an_original_checkpoint_is_restored_with_the_settings_given(
    tiny: dict[str, Any], trained: Path, tmp_path: Path
) -> None:
    weights = checkpoint.load(trained)["model"]
    file = tmp_path / "model_best.pth"
    original = {"epoch": 3, "state_dict": weights, "optimizer": {}, "monitor_best": np.float64(0.16)}
    torch.save(original, file)
    model, _, _ = restore(file, parse(tiny), {})
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    with pytest.raises(InputError, match="give --data"):
        restore(file, None, {})


def test_how_a_checkpoint_was_compiled_does_not_matter(trained: Path, tmp_path: Path) -> None:
    state = torch.load(trained, weights_only=False)
    torch.save({**state, "config": {**state["config"], "compile": "default"}}, tmp_path / "old.pt")
    assert restore(tmp_path / "old.pt", None, {})[2].compile == "off"


def test_a_checkpoint_of_another_model_is_refused_with_the_mismatch(
    tiny: dict[str, Any], trained: Path
) -> None:
    with pytest.raises(InputError, match=r"does not fit the model: .* and .* more"):
        restore(trained, parse({**tiny, "d_model": 16}), {})


def test_a_checkpoint_writes_a_report_for_every_study_asked_for(trained: Path, run: Run) -> None:
    code, out, err = run("generate", "--checkpoint", trained, "--split", "val")
    assert code == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines
    assert all(set(line) == {"id", "report"} for line in lines)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["train", "--config", "nowhere.yaml"], "cannot be read"),
        (["train"], "--config"),
        (["generate", "--checkpoint", "nowhere.pt"], "cannot be read"),
        (["generate", "--checkpoint", __file__], "is not a checkpoint"),
        (["surprise"], "surprise"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], part: str, run: Run) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith("r2gen: ")
    assert part in err


def test_a_setting_that_does_not_exist_is_named(tiny: dict[str, Any], tmp_path: Path, run: Run) -> None:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({**tiny, "data": str(tiny["data"])}))
    code, _, err = run("train", "--config", tmp_path / "c.yaml", "--set", "learningrate=1")
    assert code == 2
    assert "learningrate: no such setting" in err
