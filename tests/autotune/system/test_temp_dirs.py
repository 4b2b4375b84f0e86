"""A temporary directory is removed with its process; a killed one's is removed by the next."""

import subprocess
import sys

from autotune.system import temp_dirs

_HOLDS = """
import os, sys
from pathlib import Path
from autotune.system import temp_dirs
with temp_dirs.directory(".check-", Path(sys.argv[1])) as own:
    (own / "trial").mkdir()
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_the_next_process_removes_a_killed_ones_leftovers_but_not_those_in_use(tmp_path):
    (tmp_path / ".check-a file").touch()
    command = [sys.executable, "-c", _HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "ready\n"
        with temp_dirs.directory(".check-", tmp_path) as own:
            assert len(list(tmp_path.glob(".check-*/trial"))) == 1, "it is in use"
        assert not own.exists()
        other.kill()
    assert list(tmp_path.glob(".check-*/trial"))
    with temp_dirs.directory(".check-", tmp_path):
        assert not list(tmp_path.glob(".check-*/trial"))
    assert [file.name for file in tmp_path.iterdir()] == [".check-a file"]
