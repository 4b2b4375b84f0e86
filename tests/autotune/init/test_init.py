"""A project in, a first search space out: every kind of command line, and what is said of it."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from autotune.__main__ import main
from autotune.core.errors import InputError
from autotune.init import command, helped
from autotune.init.options import Option
from autotune.sessions import prepare
from autotune.space import configurations
from autotune.space.machine import Machine
from autotune.workloads import registry

from . import projects

KNOBS = ("batch_size", "gradient_accumulation_steps", "learning_rate", "dtype", "compile")


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes the space of some files, none of which is run for its help; returns its values and its text."""
    monkeypatch.setattr(helped, "ask", lambda *_: helped.Help(fault="ModuleNotFoundError: no torch"))

    def write(files, *, has_gpu=True):
        directory = projects.make(tmp_path / "project", files)
        output = tmp_path / "space.yaml"
        assert command.main(directory, output, None, None, has_gpu=has_gpu) == 0
        text = output.read_text()
        values = yaml.safe_load(text)
        if values["knobs"]:
            prepared(output)
        return values, text

    return write


def prepared(file):
    """The space in `file`, as a search prepares it; raises InputError where it would be refused."""
    space = prepare.read_space(file, {})
    workload = registry.load(space.workload)
    return prepare.complete(space, {}, workload, Machine(cpus=8, has_compiler=True), str(file))


def test_constants_that_are_overridden(written):
    values, text = written(projects.OF_CONSTANTS, has_gpu=False)
    run = shlex.split(values["workload"]["run"])
    assert run[:2] == ["python", "train.py"]
    assert {"--batch_size={batch_size}", "--max_iters={max_iters}", "--out_dir={workdir}"} <= set(run)
    assert not any("not_a_setting" in word for word in run)
    assert values["workload"]["directory"] == "project"
    assert values["workload"]["seed"] == "hook"
    assert values["workload"]["resume"] == {"file": "{workdir}/ckpt.pt", "arguments": "--init_from=resume"}
    assert values["roles"] == {
        "micro_batch_size": "batch_size",
        "accumulation_steps": "gradient_accumulation_steps",
        "precision": "dtype",
    }
    assert values["values"]["precision"] == {"bf16": "bfloat16", "fp16": "float16"}
    assert values["knobs"]["length"] == {"steps": ["max_iters", "warmup_iters"]}
    assert "samples_per_trial" not in values["budget"], "a trial is a whole training"
    assert values["evaluate_every"] == "eval_interval"
    assert values["baseline"]["gradient_accumulation_steps"] == 40
    assert values["baseline"]["compile"] == "default"
    assert values["baseline"]["device"] == "cpu"
    assert values["knobs"]["gradient_accumulation_steps"] == {"choice": [10, 20, 40]}
    assert values["limits"] == {"effective_batch_size": [240, 1920]}
    assert values["objective"] == {"minimize": "val_loss"}
    assert "# ?" in text


def test_arguments_that_argparse_takes(written):
    values, text = written(projects.OF_ARGUMENTS)
    workload = values["workload"]
    assert "--lr_ed {lr_ed}" in workload["run"]
    assert "--save_dir {workdir}" in workload["run"]
    assert "lr_ve" not in workload["run"]
    assert "# ? lr_ve is a learning rate, too: it stays 5e-05" in text
    assert workload["flags"] == {"precision": {"fp16": "--fp16"}}
    assert workload["resume"] == "--resume {workdir}/current_checkpoint.pth"
    assert workload["data"] == ["data/annotation.json"]
    assert values["baseline"] == {
        "batch_size": 16,
        "lr_ed": 1e-4,
        "num_workers": 2,
        "seed": 9233,
        "precision": "fp32",
    }
    assert values["roles"] == {"micro_batch_size": "batch_size", "learning_rate": "lr_ed"}
    assert values["objective"] == {"quality": "val_bleu_4"}
    assert "no torch" in text


def test_a_configuration_of_hydra_is_composed(written):
    values, _ = written(projects.OF_HYDRA)
    assert "data.batch_size={data.batch_size}" in values["workload"]["run"]
    assert "hydra.run.dir={workdir} logger=csv" in values["workload"]["run"]
    assert values["workload"]["quality"] == {"val_acc": "val/acc"}
    assert values["workload"]["csv"] == "{workdir}/csv/version_0/metrics.csv"
    assert values["baseline"]["data"] == {"batch_size": 128, "num_workers": 0}
    assert values["baseline"]["model"] == {"optimizer": {"lr": 0.001}}
    assert values["roles"]["learning_rate"] == "model.optimizer.lr"


def test_arguments_of_transformers(written):
    values, text = written(projects.OF_TRANSFORMERS)
    assert values["roles"]["micro_batch_size"] == "per_device_train_batch_size"
    assert values["workload"]["flags"] == {
        "precision": {"bf16": "--bf16", "fp16": "--fp16"},
        "gradient_checkpointing": {"true": "--gradient_checkpointing"},
    }
    assert "--output_dir {workdir}" in values["workload"]["run"]
    assert "--eval_strategy steps" in values["workload"]["run"]
    assert values["evaluate_every"] == "eval_steps"
    assert values["objective"]["minimize"] == "eval_loss"
    assert values["baseline"]["model_name_or_path"] == "?"
    assert "it has to be given: the model to begin with" in text


def test_a_command_line_of_lightning(written):
    values, _ = written(projects.OF_LIGHTNING)
    assert values["workload"]["run"].startswith("python main.py fit --data.batch_size={data.batch_size} ")
    assert "--model.lr={model.lr}" in values["workload"]["run"]
    assert values["roles"]["accumulation_steps"] == "trainer.accumulate_grad_batches"
    assert values["values"]["precision"] == {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}
    assert values["workload"]["quality"] == {"val_loss": "val_loss"}


@pytest.mark.slow
def test_a_command_line_of_lightning_is_one_that_it_takes(tmp_path):
    """Its own parser is given the proposal, with the baseline's values."""
    directory = projects.make(tmp_path / "project", projects.OF_LIGHTNING)
    output = directory / "space.yaml"
    assert command.main(directory, output, None, None, has_gpu=False) == 0
    space = prepare.read_space(output, {})
    line = registry.load(space.workload).command_line(configurations.for_workload(space, space.baseline))
    done = subprocess.run(
        ["sh", "-c", f"{line} --print_config"], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["data"]["batch_size"] == space.baseline["micro_batch_size"]


def test_a_script_of_which_nothing_is_known_still_has_a_file_that_asks(written):
    values, text = written({"train.py": "import torch\nfor _ in range(3):\n    loss.backward()\n"})
    assert values["knobs"] == {}
    assert values["workload"]["quality"] == "reported"
    assert "no setting was found" in text


def test_a_file_that_an_option_names_has_the_values(written):
    text = """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--config", default="base.yaml")
        parser.add_argument("--batch_size", type=int)
        parser.add_argument("--lr", type=float, default=0.1)
        train(parser.parse_args())
    """
    values, said = written({"train.py": text, "base.yaml": "data: {batch_size: 24}\nlr: 0.5\nwidth: 3\n"})
    assert values["baseline"] == {"batch_size": 24, "lr": 0.5}
    assert "# ? base.yaml has settings, too" in said


def test_the_help_of_a_script_confirms_what_was_read(tmp_path):
    text = """
        import argparse
        parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        parser.add_argument("--batch_size", type=int, default=8, help="samples")
        def others(parser):
            parser.add_argument("--" + "learning_rate", type=float, default=1e-3, help="of Adam")
        others(parser)
        if __name__ == "__main__":
            parser.parse_args()
            raise SystemExit("it trains")
        def unused(parser):
            parser.add_argument("--batch", type=int, default=3)
    """
    directory = projects.make(tmp_path / "project", {"train.py": text})
    found = command.look(directory, Path("train.py"), Path(sys.executable), has_gpu=False)
    assert {one.name: one.value for one in found.proposal.settings} == {
        "batch_size": 8,
        "learning_rate": 1e-3,
    }
    assert found.notes == ()


def test_a_script_that_does_not_answer_is_ended_and_said(tmp_path):
    text = "import argparse, time\nargparse.ArgumentParser\ntime.sleep(600)\n"
    directory = projects.make(tmp_path, {"train.py": text})
    asked = helped.ask(sys.executable, directory, Path("train.py"), 0.2)
    assert asked.fault == "it had not answered after 0.2 s"


def test_help_is_asked_for_without_colours(tmp_path, monkeypatch):
    """As argparse has them from Python 3.14 on, also in a pipe if they are forced."""
    text = """
import argparse, os
blue, plain = ("\\x1b[1;34m", "\\x1b[0m") if os.environ.get("FORCE_COLOR") else ("", "")
print(f"  {blue}--lr{plain} LR  (default: 0.1)\\n  --help")
"""
    monkeypatch.setenv("FORCE_COLOR", "1")
    asked = helped.ask(sys.executable, projects.make(tmp_path, {"train.py": text}), Path("train.py"), 30)
    assert helped.confirmed([], asked.text) == [Option("lr", "--lr {}", 0.1)]


def test_options_in_a_help_text():
    text = """
usage: train.py [-h] [--amp]

  -b N, --batch-size N  samples (default: 256)
  --amp                 mixed precision
  --mode {fast,slow}    how
                        (default: slow)
"""
    assert helped.confirmed([Option("gone", "--gone {}", 1)], text) == [
        Option("batch_size", "--batch-size {}", 256),
        Option("amp", "--amp", False),
        Option("mode", "--mode {}", "slow", ("fast", "slow")),
    ]


def test_it_is_a_command(tmp_path, monkeypatch, capsys):
    projects.make(tmp_path, projects.OF_CONSTANTS)
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"space.yaml: train.py with 5 knobs: {', '.join(KNOBS)}",
        "to answer first: 1 line with a `?`",
        "then: python -m autotune check space.yaml",
    ]
    assert main(["init", "--script", "missing.py", "-o", "other.yaml"]) == 2


def test_no_file_is_written_over(tmp_path):
    directory = projects.make(tmp_path, projects.OF_CONSTANTS)
    output = tmp_path / "space.yaml"
    output.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        command.main(directory, output, None, None, has_gpu=False)
    assert output.read_text() == "mine"


@pytest.mark.parametrize(("directory", "output"), [("missing", "space.yaml"), (".", "missing/space.yaml")])
def test_what_cannot_be_read_or_written_is_one_line(tmp_path, directory, output):
    projects.make(tmp_path, projects.OF_CONSTANTS)
    with pytest.raises(InputError):
        command.main(tmp_path / directory, tmp_path / output, None, None, has_gpu=False)
