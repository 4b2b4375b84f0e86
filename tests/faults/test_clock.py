"""The machine's clock is set while a search runs: a step of a library that every process of it preloads."""

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.endings import ENDED

from .searches import HERE, SLOW, Place, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the library is for Linux"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]

DAY_S = 86_400
NOW = "import time; print(time.time())"


@pytest.fixture
def clock(tmp_path):
    """Returns a function that sets the clock ahead by seconds, and the environment in which it is."""
    library, step = tmp_path / "clock_step.so", tmp_path / "clock"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "clock_step.c"], check=True)
    step.write_bytes(struct.pack("=q", 0))

    def ahead(seconds):
        with step.open("r+b") as file:  # in place, since the processes have mapped it
            file.write(struct.pack("=q", seconds))

    return ahead, {**os.environ, "LD_PRELOAD": str(library), "CLOCK_STEP": str(step)}


def test_a_search_survives_a_clock_that_is_set(clock, tmp_path):
    ahead, environment = clock
    (directory := tmp_path / "place").mkdir()
    (directory / "space.yaml").write_text(SLOW)
    path = os.pathsep.join([str(HERE), str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    environment |= {"PYTHONPATH": path, "TEST_PLACE": str(directory), "WANDB_MODE": "offline"}

    def started(*words):
        command = [sys.executable, *words]
        return subprocess.Popen(command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True)

    with Place(directory) as place:
        options = ["--space", "space.yaml", "--session", "s", "--time", "10m"]
        search = started("-m", "autotune", "search", *options)
        wait_for(lambda: len(place.records(0)) > 5)
        before_s = float(started("-c", NOW).communicate()[0])
        ahead(DAY_S)
        assert float(started("-c", NOW).communicate()[0]) - before_s > DAY_S, "the clock was set"
        wait_for(lambda: len(place.records(1)) > 5)
        ahead(-DAY_S)
        output, _ = search.communicate(timeout=240)
        assert search.returncode in ENDED, output
        assert [trial.outcome.status.value for trial in place.trials()] == ["completed"] * 3, output
        status = json.loads(started("-m", "autotune", "status", "s", "--json").communicate()[0])
        assert max(trial["seconds"] for trial in status["trials"]) < 240, "no trial took a day"
        assert status["spent_s"] < 240
        wait_for(lambda: not place.left())
