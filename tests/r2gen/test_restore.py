"""Trained models from checkpoints, ours and the original's, by the real command line."""

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from r2gen import checkpoint
from r2gen.config import parse
from r2gen.errors import InputError
from r2gen.restore import restore
from r2gen.train import fit


@pytest.fixture
def trained(tiny: dict[str, Any], tmp_path: Path) -> Path:
    records = fit(tiny, tmp_path / "run")
    list(islice(records, 2))
    records.close()
    return tmp_path / "run" / "last.pt"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "r2gen", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


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


def test_a_checkpoint_of_another_model_says_what_does_not_fit(tiny: dict[str, Any], trained: Path) -> None:
    with pytest.raises(InputError, match=r"does not fit the model: .* and .* more"):
        restore(trained, parse({**tiny, "d_model": 16}), {})


def test_a_checkpoint_writes_a_report_for_every_study_asked_for(trained: Path) -> None:
    done = run("generate", "--checkpoint", trained, "--split", "val")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
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
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], part: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("r2gen: ")
    assert part in done.stderr


def test_a_setting_that_does_not_exist_is_named(tiny: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({**tiny, "data": str(tiny["data"])}))
    done = run("train", "--config", tmp_path / "c.yaml", "--set", "learningrate=1")
    assert done.returncode == 2
    assert "learningrate: no such setting" in done.stderr
