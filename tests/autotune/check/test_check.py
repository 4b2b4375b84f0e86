"""The command `check`: real trials of a small workload, without Ray."""

import os
import re
from pathlib import Path

import pytest

from tests import forked

pytestmark = pytest.mark.usefixtures("_without_compiler")
LINEAR = Path(__file__).parents[3] / "examples" / "linear.py"
SPACE = """
workload: linear:fit
baseline: {micro_batch_size: 8, learning_rate: 1.0e-2}
knobs: {micro_batch_size: {choice: [8, 16]}}
objective: {quality: r2}
budget: {samples_per_trial: 4096}
"""
BROKEN = """
def fit(config, workdir):
    print("reading the data")
    raise FileNotFoundError("there is no data")
    yield
"""


def checked(place, workload, space=SPACE):
    (place / "linear.py").write_text(workload)
    (place / "space.yaml").write_text(space)
    return forked.run(("check", "space.yaml", "--time", "90s"), place, os.environ, timeout=120)


@pytest.mark.slow
def test_a_space_is_checked_by_running_its_baseline(tmp_path):
    done = checked(tmp_path, LINEAR.read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    rows = dict(re.findall(r"^(?:yes|no) +(a search|\w+) +(.*)$", done.stdout, re.MULTILINE))
    names = ["starts", "steps", "speed", "memory", "evaluations", "quality", "seed", "resume", "a search"]
    assert list(rows) == names
    assert "8 samples each" in rows["steps"]
    assert "one every 2,048 samples" in rows["evaluations"]
    assert rows["seed"].startswith("ignored")  # linear.py has none
    assert "it continued" in rows["resume"]
    assert {file.name for file in tmp_path.iterdir()} - {"__pycache__"} == {"linear.py", "space.yaml"}


def test_a_baseline_that_fails_is_reported_with_its_last_lines(tmp_path):
    done = checked(tmp_path, BROKEN)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the trial failed" in done.stdout
    assert "there is no data" in done.stdout
    assert "reading the data" in done.stdout


def test_a_space_that_a_search_refuses_is_refused_in_one_line(tmp_path):
    done = checked(tmp_path, BROKEN, SPACE.replace("linear:fit", "lineer:fit"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no module lineer" in done.stderr
