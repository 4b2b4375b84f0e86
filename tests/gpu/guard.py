"""`guard.cpp` as a library, and processes that load it before torch, as autograd needs it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_LOAD_AND_RUN = """
import ctypes, runpy, sys
library, module = sys.argv[1:3]
ctypes.CDLL(library)
del sys.argv[1:3]
runpy.run_module(module, run_name="__main__")
"""


def built(place: Path) -> Path:
    """The library, in `place`; skips the test where nothing can compile it, or torch has CUDA itself."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    spec = find_spec("torch")
    if compiler is None or spec is None or spec.origin is None:
        pytest.skip("needs a C++ compiler")
    torch = Path(spec.origin).parent
    if (torch / "lib" / "libtorch_cuda.so").exists():
        pytest.skip("this build of torch has a CUDA device guard of its own")
    library = place / "guard.so"
    libraries = [f"-L{torch}/lib", f"-Wl,-rpath,{torch}/lib", "-lc10", "-ltorch_cpu"]
    source = Path(__file__).with_name("guard.cpp")
    command = [compiler, "-std=c++20", "-shared", "-fPIC", f"-I{torch}/include", source, "-o", library]
    subprocess.run([*command, *libraries], check=True)
    return library


def run(library: Path, module: str, arguments: Sequence[str]) -> str:
    """What a module prints, run as a program beside the device."""
    command = [sys.executable, "-c", _LOAD_AND_RUN, str(library), module, *arguments]
    path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=_ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout
