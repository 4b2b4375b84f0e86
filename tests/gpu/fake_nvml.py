"""GPUs for the real callers of NVML (pynvml, Ray, torch) on a machine that has none: see `fake_nvml.c`."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml
import pytest

from autotune.system import devices, nvml

_SOURCE = Path(__file__).with_name("fake_nvml.c")
_TORCH = Path(__file__).with_name("torch_on_fakes")
_KERNELS = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")  # of torch 2.13 from PyPI
NO_KERNELS = "CUDA error: no kernel image is available for execution on the device\nSearch for more"


@dataclass(frozen=True)
class FakeGpu:
    """What NVML says of a GPU; a part of it is None where there is none of it.

    It has `slices` where it is in MIG mode, each with less of its memory. `fails` are NVML's errors by the
    functions that return them, such as {"MemoryInfo": 4}, of slices {"MigMemoryInfo": 4}. A process `pid`
    keeps it `busy` by so many percent, and `others` too: pairs of a pid and percent. Torch `raises` that when
    it computes on it.
    """

    name: str = "NVIDIA Fake"
    gib: float = 8
    capability: tuple[int, int] = (8, 9)
    mode: int = pynvml.NVML_COMPUTEMODE_DEFAULT
    slices: int | None = None
    used_gib: float = 0
    pid: int | None = None
    busy: int = 50
    others: Sequence[tuple[int, int]] = ()
    reasons: int = 0
    fails: Mapping[str, int] = field(default_factory=dict)
    raises: str | None = None

    def uuid(self, index: int, slice_index: int | None = None) -> str:
        """What NVML calls it as the GPU `index`, or a slice of it."""
        kind, number = ("GPU", 0) if slice_index is None else ("MIG", slice_index + 1)
        return f"{kind}-{index:08x}-0000-0000-0000-{number:012x}"

    def told(self) -> str:
        """The same for the library to read."""
        major, minor = self.capability
        kept = {"name": self.name, "gib": self.gib, "major": major, "minor": minor, "mode": self.mode}
        kept |= {"slices": self.slices, "used_gib": self.used_gib, "pid": self.pid, "busy": self.busy}
        kept["others"] = " ".join(f"{pid}:{busy}" for pid, busy in self.others) or None
        pairs = {**kept, "reasons": self.reasons, **self.fails}
        return "".join(f"{key}={value}," for key, value in pairs.items() if value is not None) + ";"

    def seen(self, index: int) -> dict[str, Any]:
        """What torch sees of it as the GPU `index`: see `torch_on_fakes`."""
        slices = [self.uuid(index, i) for i in range(self.slices or 0)]
        return {
            "uuids": slices or [self.uuid(index)],
            "name": self.name,
            "memory_bytes": int(self.gib * 2**30 / (len(slices) + 1 if slices else 1)) - 2**20,
            "compute_capability": self.capability,
            "raises": self.raises,
        }


def environment_of(*gpus: FakeGpu) -> dict[str, str]:
    """The variables in which NVML and torch find the GPUs."""
    seen = [gpu.seen(index) for index, gpu in enumerate(gpus) if "Handle" not in gpu.fails]
    return {
        "FAKE_NVML": "".join(gpu.told() for gpu in gpus),
        "FAKE_TORCH": json.dumps({"gpus": seen, "kernels": _KERNELS}),
    }


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, compiled; the test is skipped where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, _SOURCE], check=True)
    return library


@pytest.fixture
def fake_gpus(nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives this process the GPUs that it is called with, and as CUDA_VISIBLE_DEVICES what is `visible`.

    Only by pynvml, which has loaded another library, or none, before and after; its children find them by all
    that asks NVML, and by torch.
    """
    path = os.pathsep.join(filter(None, [str(_TORCH), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent))
    monkeypatch.setattr(pynvml, "nvmlLib", pynvml.CDLL(str(nvml_library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    for name in ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"):  # set first, or nothing would be put back
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    def make(*gpus: FakeGpu, visible: str | None = None) -> None:
        for name, value in environment_of(*gpus).items():
            monkeypatch.setenv(name, value)
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return make


@pytest.fixture
def driver_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The device node by which a driver in the kernel is recognised; there is none until a test makes it."""
    node = tmp_path / "nvidiactl"
    monkeypatch.setattr(nvml, "_NODES", (str(node),))
    return node


@pytest.fixture
def hang(driver_node: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Makes the driver hang from now on, and its callers give up on it sooner."""

    def make() -> None:
        driver_node.touch()
        monkeypatch.setenv("FAKE_NVML_HANGS", "1")
        monkeypatch.setattr(devices, "_ANSWER_S", 0.5)

    yield make
    devices._hanging = None
    while devices._abandoned:  # they are killed, and no real driver keeps them from ending
        with devices._abandoned.pop():
            pass
