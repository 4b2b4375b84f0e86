"""The command line: invalid input, and the state after a signal or with a full disk."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from r2gen import checkpoint
from r2gen.__main__ import main
from r2gen.findings import asserted
from r2gen.model import R2Gen
from r2gen.visual import VisualExtractor
from tests import forked
from tests.forked import Forked
from tests.r2gen.compared.written import entry
from tests.r2gen.compared.written import write as write_reports
from tests.r2gen.faults import before_passes, change_models, spoil

WITHOUT_THE_TUNER = """
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("ray", "optuna", "wandb", "autotune"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Missing())
runpy.run_module("r2gen", run_name="__main__")
"""
ON_A_FULL_DISK = f"""
import resource

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
{forked.TRAINER}
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tiny: dict[str, Any], tmp_path: Path) -> Write:
    """Writes the tiny configuration, with some settings replaced, to a file."""

    def to_file(**changes: Any) -> Path:
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump({**tiny, **changes}))
        return file

    return to_file


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment without Java on its path."""
    return {**os.environ, "PATH": str(tmp_path / "nothing"), "PYTHONUNBUFFERED": "1"}


def _train(config: Path, workdir: Path, *more: str) -> list[str]:
    return ["train", "--config", str(config), "--workdir", str(workdir), *more]


def _wait_for_samples(process: Forked, beyond: int) -> None:
    """Waits for a progress line with more than `beyond` samples."""
    while (
        max(map(int, re.findall(r"^epoch \d+, (\d+) samples", process.said(), re.MULTILINE)), default=0)
        <= beyond
    ):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGTERM, 0), (signal.SIGINT, 1)])
def test_a_signal_stops_training_and_the_same_command_resumes(
    write: Write, tmp_path: Path, environment: dict[str, str], number: signal.Signals, workers: int
) -> None:
    """The whole process group gets the signal, as from a terminal."""
    command = tuple(_train(write(epochs=10_000, num_workers=workers), tmp_path / "run"))
    stopped_at = 0
    for _ in range(2):
        process = Forked(command, tmp_path, environment, script=forked.TRAINER, leads=True, warm="trainer")
        _wait_for_samples(process, stopped_at)
        os.killpg(process.pid, number)
        out, err = process.communicate()
        assert process.returncode == 128 + number
        said = re.search(r"stopped after (\d+) samples; the same command continues from there\n$", out)
        assert said, out
        assert err.count("r2gen: stops after this step or evaluation") == 1
        assert "Traceback" not in err
        stopped_at = int(said[1])
        assert checkpoint.load(tmp_path / "run" / "last.pt")["samples"] == stopped_at


@pytest.mark.parametrize(
    ("epochs", "where", "samples"),
    [(2, "from the last checkpoint before the skipped steps", 4), (1, "from there", 10)],
)
def test_the_same_command_resumes_at_the_checkpoint(  # noqa: PLR0917 - fixtures
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    without_java: None,
    epochs: int,
    where: str,
    samples: int,
) -> None:
    """Stopped in an evaluation after two bad steps: before more of them, and after the last one."""

    def change(model: R2Gen) -> None:
        spoil(model, {2, 3})
        model.visual_extractor.register_forward_pre_hook(stop_in_evaluation)

    signals = iter([signal.SIGTERM])

    def stop_in_evaluation(extractor: nn.Module, _: object) -> None:
        if not extractor.training and (number := next(signals, None)):
            os.kill(os.getpid(), number)

    change_models(monkeypatch, change)
    assert main(_train(write(epochs=epochs, checkpoint_every_steps=1), tmp_path / "run")) == 143
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == f"stopped after 10 samples; the same command continues {where}"
    assert checkpoint.load(tmp_path / "run" / "last.pt")["samples"] == samples


def test_training_needs_nothing_of_the_tuner(
    write: Write, tmp_path: Path, environment: dict[str, str]
) -> None:
    command = [sys.executable, "-c", WITHOUT_THE_TUNER, *_train(write(epochs=1), tmp_path / "run")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"done; the best checkpoint is {tmp_path / 'run' / 'best.pt'}" in done.stdout


def test_a_full_disk_is_one_line_and_the_checkpoint_before_stays(
    write: Write, tmp_path: Path, environment: dict[str, str], without_java: None
) -> None:
    run = tmp_path / "run"
    assert main(_train(write(epochs=1), run)) == 0
    before = {file.name: file.read_bytes() for file in run.iterdir()}

    command = tuple(_train(write(epochs=2), run))
    done = forked.run(command, tmp_path, environment, script=ON_A_FULL_DISK, warm="trainer")

    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if "METEOR" not in line and "parameters" not in line]
    assert len(said) == 1
    assert re.fullmatch(
        r"r2gen: checkpoint .*/run/\w+\.pt: cannot be written: File too large; .*: it goes on from the "
        r"checkpoint before, if there is one",
        said[0],
    )
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before
    assert main(_train(write(epochs=2), run)) == 0
    assert checkpoint.load(run / "last.pt")["samples"] == 20


def test_a_bad_key_is_one_line_and_exit_code_2(write: Write, tmp_path: Path) -> None:
    command = tuple(_train(write(learningrate=1), tmp_path / "run"))
    done = forked.run(command, tmp_path, os.environ, script=forked.TRAINER, warm="trainer")
    assert done.returncode == 2
    assert done.stderr.startswith("r2gen: config: learningrate: no such setting")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def _refused(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """Returns the single line of the error."""
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("num_heads=3", "num_heads must divide d_model, got 3 and 32"),
        ("rm_num_heads=5", "rm_num_heads must divide d_model, got 5 and 32"),
        ("data=/nowhere", "/nowhere/annotation.json: cannot be read: No such file or directory"),
        ("compat", "--set: NAME=VALUE, got 'compat'"),
        ("beam_size=100000", "beam_size: at most the 26 words"),
        ("learning_rate=.inf", "finite number"),
        ("image_cache_gib=.nan", "finite number"),
        ("image_size=32", "greater than or equal to 64"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, reason: str
) -> None:
    assert reason in _refused(capsys, _train(write(), tmp_path / "run", "--set", given))


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what a machine without a GPU cannot do")
@pytest.mark.parametrize("name", ["tf32", "fp16", "fp8"])
def test_a_precision_that_this_machine_has_not_is_refused(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    said = _refused(capsys, _train(write(precision=name), tmp_path / "run"))
    assert f"precision {name}: needs a CUDA device; fp32, torch-default and bf16 run here" in said
    assert not (tmp_path / "run").exists()


def test_a_directory_that_cannot_be_written_is_refused(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _refused(capsys, _train(write(), Path("/proc/x")))
    assert said == "r2gen: directory /proc/x: cannot be written: No such file or directory\n"
    (tmp_path / "file").touch()
    assert "file: cannot be written: File exists" in _refused(capsys, _train(write(), tmp_path / "file"))


def test_a_checkpoint_of_other_reports_is_refused(
    write: Write, tmp_path: Path, own_data: Path, capsys: pytest.CaptureFixture[str], without_java: None
) -> None:
    assert main(_train(write(epochs=1), tmp_path / "run")) == 0
    annotation = own_data / "annotation.json"
    annotation.write_text(annotation.read_text().replace("lungs", "aardvark"))
    capsys.readouterr()

    said = _refused(capsys, _train(write(data=str(own_data)), tmp_path / "run"))

    words = len(checkpoint.load(tmp_path / "run" / "last.pt")["vocabulary"])
    assert f"its vocabulary has {words} words, that of the data has {words}" in said
    assert said.endswith(", now 'aardvark'\n")


def test_an_original_checkpoint_of_other_reports_is_refused(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], without_java: None
) -> None:
    assert main(_train(write(epochs=1), tmp_path / "run")) == 0
    file = tmp_path / "model_best.pth"
    torch.save({"epoch": 1, "state_dict": checkpoint.load(tmp_path / "run" / "last.pt")["model"]}, file)
    capsys.readouterr()

    said = _refused(capsys, ["generate", "--checkpoint", str(file), "--config", str(write(min_word_count=3))])

    assert re.search(r"has a vocabulary of \d+ words, the training split has \d+: .* min_word_count", said)


def test_a_run_that_diverges_ends_with_exit_code_1_and_names_its_steps(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], without_java: None
) -> None:
    config = write(learning_rate=1e30, eval_every_samples=10**6, epochs=9)
    assert main(_train(config, tmp_path / "run")) == 1
    out, err = capsys.readouterr()
    assert re.search(r"epoch 1, step 2: the loss is \S+, .*: this step is skipped", out)
    assert re.search(
        r"^r2gen: the loss is .* at step 2, epoch 1, and no better in the 3 steps", err, re.MULTILINE
    )


def test_compat_outranks_the_settings_of_a_whole_configuration(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], without_java: None
) -> None:
    config = write(epochs=1, test_scores=False, block_trigrams="off")
    assert main(_train(config, tmp_path / "run", "--set", "compat=original")) == 0
    assert "test_bleu_4" in capsys.readouterr().out
    stored = checkpoint.load(tmp_path / "run" / "last.pt")["config"]
    assert (stored["compat"], stored["block_trigrams"]) == ("original", "greedy_only")


def test_training_prints_the_chance_level_and_warns_if_the_model_ignores_its_input(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], without_java: None
) -> None:
    assert main(_train(write(epochs=1, eval_studies=None), tmp_path / "run")) == 0
    said = capsys.readouterr().out.splitlines()
    shown = next(line for line in said if line.startswith("epoch 1, 10 samples: val_loss"))
    assert re.search(r": .*bleu_4 0\.\d{4} \(chance 0\.\d{4}\), full_bleu_4 0\.\d{4}, rouge_l", shown)
    assert re.search(r"; (1 distinct report|[2-4] distinct reports) of 4: .* it sees$", shown)


def test_every_epoch_is_summed_up_in_a_line(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], without_java: None
) -> None:
    assert main(_train(write(), tmp_path / "run")) == 0
    out, err = capsys.readouterr()
    said = out.splitlines()
    number = r"\d+\.\d+"
    line = rf"epoch (\d): {number} s of training, {number} samples/s, mean loss {number}"
    assert [found[1] for text in said if (found := re.fullmatch(line, text))] == ["1", "2"]
    assert sum("bleu_4" in text for text in said) == 2, "who reads scores there finds each evaluation once"
    assert re.search(r"^[\d,]+ parameters, [\d,]+ of them trained$", err, re.MULTILINE)
    assert re.search(r"best\.pt \(\d+\.\d MB\)$", said[-1])


def test_records_are_logged_as_lines_and_as_charts_across_a_stop(
    write: Write, tmp_path: Path, without_java: None
) -> None:
    file, board = tmp_path / "new" / "records.jsonl", tmp_path / "board"
    for epochs in (1, 2):
        more = ("--records", str(file), "--tensorboard", str(board))
        assert main(_train(write(epochs=epochs), tmp_path / "run", *more)) == 0

    records = [json.loads(line) for line in file.read_text().splitlines()]
    # The second run repeats the first one's last evaluation.
    assert [r["samples"] for r in records] == [4, 8, 10, 10, 10, 14, 18, 20, 20]
    charts = EventAccumulator(str(board)).Reload()
    losses = [(event.step, event.value) for event in charts.Scalars("train/loss")]
    assert losses == [(r["samples"], pytest.approx(r["train_loss"])) for r in records if "train_loss" in r]
    assert [event.step for event in charts.Scalars("val/bleu_4")] == [10, 10, 20]


@pytest.mark.parametrize("option", ["--records", "--tensorboard"])
def test_a_place_for_records_that_cannot_be_written_is_refused(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    said = _refused(capsys, _train(write(), tmp_path / "run", option, "/proc/x/y"))
    assert said == "r2gen: /proc/x/y: cannot be written: No such file or directory\n"
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_is_scored_on_the_split_asked_for(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], without_java: None
) -> None:
    assert main(_train(write(epochs=1), tmp_path / "run")) == 0
    capsys.readouterr()
    assert main(["evaluate", "--checkpoint", str(tmp_path / "run" / "best.pt"), "--split", "test"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["split"], found["studies"]) == ("test", 3)
    assert 0 <= found["full_bleu_4"] <= 1
    assert 0 < found["full_bleu_4_chance"] <= 1
    assert found["loss"] > 0
    assert found["collapsed"] is True  # trained on ten studies for one epoch
    assert len(found["bleu_4_items"]) == 3
    assert found["reports_per_s"] == pytest.approx(3 / found["seconds"])
    assert found["peak_memory_bytes"] > 2**20
    assert found["parameters"] > 1000


# Answers as METEOR does: with statistics, and with more scores than are asked for.
JAVA = """#!/bin/sh
while read -r line; do
  case "$line" in EVAL*) yes 0.5 | head -n 100 ;; *) echo 1 ;; esac
done
"""


@pytest.mark.parametrize(
    ("asked", "is_scored"),
    [([], True), (["--set", "meteor=false"], False), (["--set", "meteor=n"], False)],
)
def test_meteor_is_scored_unless_the_command_turns_it_off(  # noqa: PLR0917 - fixtures
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: list[str],
    is_scored: bool,
) -> None:
    """The checkpoint's setting is that of a trial, which skips METEOR to save time."""
    assert main(_train(write(epochs=1, meteor=False), tmp_path / "run")) == 0
    capsys.readouterr()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA)
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(java.parent), prepend=os.pathsep)
    assert main(["evaluate", "--checkpoint", str(tmp_path / "run" / "best.pt"), *asked]) == 0
    assert ("meteor" in json.loads(capsys.readouterr().out)) is is_scored


def test_a_configuration_is_read_before_the_reports_are_written(
    write: Write, tmp_path: Path, without_java: None
) -> None:
    """It may be edited or moved while reports are generated, which can take an hour."""
    config = write(epochs=1)
    assert main(_train(config, tmp_path / "run")) == 0
    command = ["evaluate", "--checkpoint", str(tmp_path / "run" / "best.pt"), "--config", str(config)]
    with before_passes(VisualExtractor, lambda *_: config.unlink(missing_ok=True)):
        assert main(command) == 0
    assert not config.exists()


@pytest.mark.parametrize("command", ["evaluate", "generate"])
def test_ctrl_c_while_reports_are_written_is_one_line(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], without_java: None, command: str
) -> None:
    assert main(_train(write(epochs=1), tmp_path / "run")) == 0
    capsys.readouterr()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with before_passes(VisualExtractor, interrupt):
        assert main([command, "--checkpoint", str(tmp_path / "run" / "best.pt")]) == 130
    assert capsys.readouterr() == ("", "r2gen: interrupted\n")


def test_scores_are_printed_although_the_reports_cannot_be_written(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], without_java: None
) -> None:
    assert main(_train(write(epochs=1), tmp_path / "run")) == 0
    capsys.readouterr()
    (tmp_path / "taken").mkdir()
    command = ["evaluate", "--checkpoint", str(tmp_path / "run" / "best.pt")]
    assert main([*command, "--reports", str(tmp_path / "taken")]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["studies"] == 3
    assert err.endswith(f"r2gen: reports {tmp_path / 'taken'}: cannot be written: Is a directory\n")


def test_the_reports_of_a_checkpoint_are_written_down_one_by_one(
    write: Write, drawn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], without_java: None
) -> None:
    assert main(_train(write(epochs=1), tmp_path / "run")) == 0
    command = ["evaluate", "--checkpoint", str(tmp_path / "run" / "best.pt"), "--split", "test", "--reports"]
    capsys.readouterr()

    assert main([*command, str(tmp_path / "new" / "reports.jsonl")]) == 0

    scores = json.loads(capsys.readouterr().out)
    written = [json.loads(line) for line in (tmp_path / "new" / "reports.jsonl").read_text().splitlines()]
    studies = json.loads((drawn / "annotation.json").read_text())["test"]
    assert [w["id"] for w in written] == [study["id"] for study in studies]
    for w, study in zip(written, studies, strict=True):
        assert [Path(image) for image in w["images"]] == [drawn / "images" / p for p in study["image_path"]]
        assert w["reference"].split() == study["report"].lower().replace(".", " .").split()
        assert w["true"] == asserted(study["report"])
        assert w["found"] == asserted(w["report"])
        assert set(w["scores"]) == {"bleu_1", "bleu_4", "rouge_l"}
        assert all(0 <= value <= 1 for value in w["scores"].values())
    assert any(w["true"] for w in written)
    assert scores["studies"] == len(written)
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["reports.jsonl"]
    assert "/proc/x: cannot be written" in _refused(capsys, [*command, "/proc/x/reports.jsonl"])


def test_a_sheet_has_the_reports_of_models_for_the_same_studies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other, none = (
        str(write_reports(tmp_path / name, [entry(n, f"{name} wrote {n}") for n in studies]))
        for name, studies in (("one", range(6)), ("other", range(4)), ("none", ()))
    )
    file = tmp_path / "sheet.html"
    assert main(["sheet", one, other, "--samples", "2", "--output", str(file)]) == 0
    assert capsys.readouterr() == (f"sheet: {file}: 2 studies\n", "")
    assert file.read_text().count("data-report=") == 4
    for given, reason in (
        ([one, "--samples", "0"], "--samples: at least 1, got 0"),
        ([none], f"reports: no study is in all of: {none}"),
        ([str(tmp_path / "no")], f"reports {tmp_path}/no: cannot be read: No such file or directory"),
        ([one, "--output", str(tmp_path)], f"--output {tmp_path}: cannot be written: Is a directory"),
        (["--samples", "3"], "the following arguments are required: reports"),
    ):
        assert reason in _refused(capsys, ["sheet", *given])
