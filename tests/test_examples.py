"""The examples, run as their README says."""

import subprocess
import sys
from pathlib import Path

from tests.endings import ENDED

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_smallest_workload_can_be_tuned(tmp_path):
    for file in EXAMPLES.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    command = (EXAMPLES / "README.md").read_text().split("python -m ")[1].split("\n")[0].split()
    done = subprocess.run(
        [sys.executable, "-m", *command, "--trials", "3", "--repeats", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in ENDED, done.stdout + done.stderr
    assert "r2 0.99" in done.stdout or "r2 1.0" in done.stdout
