"""A memory limit that is too small for importing torch is refused before the first trial, in one line."""

import re
import resource
import subprocess
import sys

import pytest

from autotune import __main__ as cli
from autotune.sessions import import_room
from autotune.workloads.command.workload import CommandWorkload
from lab.__main__ import app as lab

TRAINS = "import torch\n"
COUNTED = {"quality": {"acc": "acc (.*)"}}
REPORTED = {"quality": "reported"}
OWN_STEPS = {**COUNTED, "steps": "^step"}


def workload(tmp_path, text=TRAINS, **keys):
    (tmp_path / "train.py").write_text(text)
    return CommandWorkload.parse({"kind": "command", "run": "python train.py", **COUNTED} | keys, tmp_path)


@pytest.mark.parametrize(
    "command",
    [("autotune", "search"), pytest.param(("lab", "record", "table.jsonl"), marks=pytest.mark.slow)],
    ids=lambda words: words[1],
)
def test_too_small_a_limit_is_one_line_and_makes_no_session(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "space.yaml").write_text(
        "workload: {kind: command, run: 'python train.py {lr}', quality: {bleu_4: 'b (.*)'}}\n"
        "baseline: {effective_batch_size: 4, lr: 0.1}\nknobs: {lr: {choice: [0.1, 0.2]}}\n"
    )
    name, *words = command
    given = [*words, "--space", "space.yaml", "--memory-limit", "100MiB"]
    code = cli.main(given, (lambda: lab) if name == "lab" else None)
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    line = r"autotune: --memory-limit 100MiB: importing torch alone takes [\d.]+ [MG]iB here\n"
    assert re.fullmatch(line, said.err), said.err
    assert not (tmp_path / "runs").exists()


def test_the_figure_is_what_the_cap_counts(tmp_path):
    taken = import_room.taken_bytes(workload(tmp_path).python_with_torch({}), on_gpu=False)
    assert not imports_within(taken - 2**23)
    assert imports_within(taken + 2**23)
    assert import_room.taken_bytes(workload(tmp_path).python_with_torch({}), on_gpu=True) < taken


def imports_within(limit):
    done = subprocess.run(
        [sys.executable, "-c", "import torch"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


@pytest.mark.parametrize(
    ("text", "keys", "needs"),
    [
        ("", {}, True),  # torch counts its steps
        ("", OWN_STEPS, False),
        ("", REPORTED, False),
        ("from torch import nn", REPORTED, True),
        ("import torch.nn as nn", OWN_STEPS, True),
        ("", {"run": "conda run python train.py"}, False),  # its Python is unknown
    ],
)
def test_only_a_command_that_needs_torch_is_checked(tmp_path, text, keys, needs):
    assert bool(workload(tmp_path, text, **keys).python_with_torch({})) is needs


def test_a_python_without_torch_is_accepted(tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    call = workload(tmp_path, python=str(program)).python_with_torch({})
    assert import_room.taken_bytes(call, on_gpu=False) is None
