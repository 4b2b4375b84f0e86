"""The tutorial from its first command to its last, for real, and what the pages show of what comes out."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.sessions import faults
from r2gen import annotation
from r2gen import config as trainer
from tests import forked
from tests.endings import ENDED

from . import pages, shell

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

# What the tutorial says, and what is run here instead: the same commands with a small model and budget.
# None: make would install an environment; `test_pages` checks what it would do.
SUBSTITUTES = {
    "make doctor": None,
    "source .venv/bin/activate": None,
    "--trials 12": "--trials 2 --space tiny.yaml --repeats 0 --keep 0",
    "--set epochs=4": "--set epochs=1",
}
TINY = """
workload: r2gen
baseline:
  {visual_extractor: small, image_size: 64, d_model: 32, d_ff: 32, num_layers: 1, num_heads: 2,
   rm_num_heads: 2, micro_batch_size: 4, num_workers: 0, max_seq_length: 30, beam_size: 1, eval_studies: 4,
   meteor: false}
knobs:
  micro_batch_size: {choice: [4, 16]}
budget: {samples_per_trial: 128}
"""
TUTORIAL = pages.ROOT / "docs" / "tutorial.md"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory in which the tutorial was followed, and what every command printed."""
    root = tmp_path_factory.mktemp("tutorial")
    (root / "tiny.yaml").write_text(TINY)
    said = {}
    for block in pages.blocks(TUTORIAL):
        for line in shell.lines(block.text) if block.language == "bash" else ():
            if (command := substituted(line)) is not None:
                said[line] = run(root, command)
    return root, said


def substituted(line):
    for text, instead in SUBSTITUTES.items():
        if text in line:
            return None if instead is None else line.replace(text, instead)
    return line


def run(root, line):
    program, *arguments = shell.words(line)
    given = tuple(arguments)
    if program == "autotune":
        done = forked.run(given, root, os.environ, timeout=300)
    else:
        assert program == "r2gen", line
        done = forked.run(given, root, os.environ, script=forked.TRAINER, warm="trainer", timeout=300)
    assert done.returncode in (ENDED if " search " in line else {0}), f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_every_substitute_stands_for_something_in_the_tutorial():
    text = TUTORIAL.read_text(encoding="utf-8")
    assert [line for line in SUBSTITUTES if line not in text] == []


def test_the_tutorial_ends_with_reports(place):
    root, said = place
    evaluated, generated = list(said.values())[-2:]
    assert json.loads(evaluated)["studies"] == 64
    written = [json.loads(line) for line in generated.splitlines()]
    assert len(written) == 64
    assert all(study["report"] for study in written)
    assert {"best.yaml", "results", "runs"} <= {file.name for file in root.iterdir()}


PYTHON = [block for block in pages.of_language("python") if block.title is None]


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_runs(block, place):
    root, _ = place
    page = next(page for page in pages.PAGES if pages.name(page) == block.page)
    for file in pages.blocks(page):
        if file.title is not None:
            (root / file.title).write_text(file.text)
    subprocess.run([sys.executable, "-c", block.text], cwd=root, check=True)


def test_the_data_set_of_the_how_to_is_one(place):
    root, _ = place
    block = next(block for block in PYTHON if "annotation.json" in block.text)
    subprocess.run([sys.executable, "-c", block.text], cwd=root, check=True)
    found = annotation.load_annotation(trainer.parse({"data": root / "data" / "mine"}))
    assert {split: len(studies) for split, studies in found.splits.items()} == {
        "train": 8,
        "val": 2,
        "test": 2,
    }


def mentioned(page):
    """The inline code of a page of the reference; `bleu_1` to `bleu_4` are all four."""
    file = pages.ROOT / "docs" / "reference" / page
    found = set(pages.inline_code(file))
    for stem, first, last in re.findall(r"`(\w+_)(\d)` to `\w+_(\d)`", file.read_text(encoding="utf-8")):
        found |= {f"{stem}{n}" for n in range(int(first), int(last) + 1)}
    return found


def test_every_file_of_a_session_is_in_the_reference(place):
    root, _ = place
    session = root / "runs" / "first"
    names = {file.name + "/" * file.is_dir() for file in session.iterdir()}
    trial = {file.name for file in (session / "trials" / "0000").iterdir()}
    names = {"trials/0007/" if name == "trials/" else name for name in names}
    assert names | trial - mentioned("session.md") <= mentioned("session.md")


def test_every_name_in_a_record_is_in_the_reference(place):
    root, _ = place
    lines = (root / "runs" / "first" / "trials" / "0000" / "records.jsonl").read_text().splitlines()
    names = set().union(*(json.loads(line) for line in lines))
    assert {"train_loss", "bleu_4", "at_s"} <= names
    assert names <= mentioned("records.md")


def test_every_exit_code_is_in_the_reference():
    text = Path(pages.ROOT, "docs", "reference", "exit-codes.md").read_text(encoding="utf-8")
    codes = {value for name, value in vars(faults).items() if name.startswith("EXIT_")}
    assert codes == {1, 2, 130}
    assert {int(code) for code in re.findall(r"^\| (\d+) ", text, re.MULTILINE)} >= codes
