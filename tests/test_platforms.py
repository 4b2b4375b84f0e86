"""Elsewhere than on Linux the programs say so in one line, before anything is imported that is not there."""

import subprocess
import sys

import pytest

# Another system's Python: its name, and none of the modules that only Unix has.
ELSEWHERE = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"fcntl", "resource", "pwd", "grp", "termios", "pydantic", "ray"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
program, sys.platform = sys.argv[1:3]
sys.argv[1:] = ["--help"]
import runpy
runpy.run_module(program, run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("program", ["autotune", "r2gen"])
@pytest.mark.parametrize(
    ("system", "said"),
    [
        ("win32", "on Windows run it in WSL2, which `wsl --install` sets up"),
        ("darwin", "on macOS run it in a Linux virtual machine or container"),
        ("freebsd14", "this is freebsd14"),
    ],
)
def test_a_program_says_in_one_line_that_it_needs_linux(program, system, said):
    command = [sys.executable, "-c", ELSEWHERE, program, system]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{program}: needs Linux, for ")
    assert done.stderr.endswith(f": {said}\n")
    assert done.stderr.count("\n") == 1


def test_a_training_script_may_report_on_any_system():
    """It is the same script that is tuned elsewhere: outside of a trial nothing happens."""
    script = "import autotune; autotune.report(samples=1); assert not autotune.should_stop()"
    patched = ELSEWHERE[: ELSEWHERE.index("sys.argv[1:] =")] + script
    subprocess.run([sys.executable, "-c", patched, "autotune", "win32"], check=True)
