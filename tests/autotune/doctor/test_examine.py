import itertools
import os
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from rich.console import Console

from autotune.core.shell import pip_install
from autotune.doctor import examine
from autotune.doctor.examine import Capability
from autotune.sessions.gpus import DeviceVerdict, Fault, Look, Torch
from autotune.space.machine import Machine
from autotune.system.nvml import Gpu
from autotune.system.telemetry import Hardware, hardware
from tests import forked
from tests.gpu.fake_torch import fake_torch

__all__ = ["fake_torch"]

ROOT = Path(__file__).parents[3]
KEY = "made-up-key-" + "0123456789" * 3
A100 = Gpu("NVIDIA A100-SXM4-80GB", 80 * 2**30, (8, 0), "GPU-0")
GPU_MACHINE = Hardware(8, 2**34, (A100,), "580.1")
ON_GPU = {"compute_capability": (9, 0)}
EXAMINE = """
from autotune.doctor.examine import examine
for one in examine():
    print(one.name, "|", one.ok, "|", one.detail, "|", one.remedy)
"""


def examined(**environment: str) -> tuple[dict[str, tuple[bool, str]], str]:
    """Returns the doctor's findings in an environment, by name, and its whole output."""
    done = forked.run((), Path.cwd(), os.environ | environment, script=EXAMINE)
    assert done.returncode == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        name, ok, detail, remedy = line.split(" | ")
        found[name] = (ok == "True", detail)
        assert ok == "True" or remedy, f"{name} has no remedy"
    return found, done.stdout + done.stderr


def by_name(capabilities: list[Capability]) -> dict[str, tuple[bool, str]]:
    return {c.name: (c.ok, c.detail) for c in capabilities}


def test_this_machine_is_examined() -> None:
    import torch

    found, _ = examined()
    assert found["Python"][0]
    assert found["torch"][1].startswith(torch.__version__)
    assert found["fp32"][0]
    assert found["ray"][0]
    assert found["optuna"][0]
    assert found["CPUs"][1].startswith(f"{hardware().cpus} usable")
    assert str(Path.cwd()) in found["disk"][1]
    assert {"NVIDIA driver", "tf32", "bf16", "fp16", "fp8", "memory", "shared memory", "Java"} <= set(found)
    assert {"wandb", "W&B online", "optuna-dashboard", "tensorboard", "torch.compile"} <= set(found)
    assert found["tensorboard"][1].endswith("tensorboard --logdir SESSION/tensorboard")


@pytest.mark.slow
def test_missing_java_and_a_key_are_reported_without_printing_the_key(tmp_path: Path) -> None:
    found, printed = examined(PATH=str(tmp_path), WANDB_API_KEY=KEY)
    assert found["Java"] == (False, "not found: METEOR is left out of the scores")
    assert found["torch.compile"] == (False, "needs a C++ compiler")
    assert found["W&B online"] == (True, "WANDB_API_KEY is set: runs go online")
    assert KEY not in printed


def test_without_a_key_runs_are_kept_offline() -> None:
    assert examine.wandb_key({}).ok is False
    assert examine.wandb_key({"WANDB_API_KEY": ""}).ok is False


def test_a_key_and_wandb_mode_decide_if_runs_go_online() -> None:
    assert examine.wandb_key({"WANDB_API_KEY": "made up"}).ok is True
    found = examine.wandb_key({"WANDB_API_KEY": "made up", "WANDB_MODE": "offline"})
    assert (found.ok, found.detail) == (False, "WANDB_MODE is offline: runs are kept offline")


def test_an_import_error_of_torch_is_reported(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: cannot open shared object file')")
    found, _ = examined(PYTHONPATH=f"{tmp_path}:{Path.cwd()}")
    error = "OSError: libcudart.so.13: cannot open shared object file"
    assert found["torch"] == (False, f"`import torch` fails: {error}")


def test_torch_has_one_row_and_every_gpu_its_own() -> None:
    torch = Torch("2.13.0", "13.0", devices=[{}])
    lost = DeviceVerdict("GPU 1", fault=Fault("GPU is lost", "restart"))
    slow = DeviceVerdict("GPU 2", replace(A100, exclusive=True), Fault("has no kernels", "install another"))
    look = Look(torch, (DeviceVerdict("GPU 0", A100), lost, slow))
    assert examine.torch(look) == Capability("torch", True, "2.13.0, CUDA 13.0")
    a100 = "NVIDIA A100-SXM4-80GB, 80.0 GiB, compute capability 8.0"
    faults = f"{a100}; in exclusive compute mode: no two trials can share it; has no kernels"
    assert list(examine.devices(look, GPU_MACHINE, None)) == [
        Capability("GPU 0", True, a100),
        Capability("GPU 1", False, "GPU is lost", "restart"),
        Capability("GPU 2", False, faults, "install another"),
    ]


def test_hidden_gpus_are_reported() -> None:
    (hidden,) = examine.devices(Look(Torch("2.13.0", "13.0")), replace(GPU_MACHINE, gpus=()), "-1")
    assert (hidden.ok, hidden.detail) == (False, "none visible: CUDA_VISIBLE_DEVICES is '-1'")


def test_precisions_follow_the_gpu() -> None:
    found = by_name(list(examine.precisions(Machine(8, (8, 0), has_torchao=True))))
    usable = [name for name, (ok, _) in found.items() if ok]
    assert usable == ["fp32", "torch-default", "tf32", "bf16", "fp16"]
    assert "8.9" in found["fp8"][1]
    found = by_name(list(examine.precisions(Machine(8, (9, 0), has_torchao=True))))
    assert all(ok for ok, _ in found.values())
    *_, fp8 = examine.precisions(Machine(8, (9, 0)))
    assert fp8 == Capability("fp8", False, "needs torchao", pip_install("torchao"))


def test_a_cpu_has_no_fp16() -> None:
    found = by_name(list(examine.precisions(Machine(8))))
    assert (found["bf16"][0], found["fp16"][0]) == (True, False)


def test_too_little_room_is_reported_with_its_consequence(tmp_path: Path) -> None:
    assert examine.space_left("disk", tmp_path, 1, "full").ok
    short = examine.space_left("disk", tmp_path, 2**70, "free some")
    assert not short.ok
    assert short.remedy == "free some"
    assert not examine.space_left("disk", tmp_path / "none", 1, "free some").ok


@pytest.mark.parametrize(
    ("lacking", "detail", "remedy"),
    [
        ({"has_compiler": False}, "needs a C++ compiler", "install one, such as g++, and search again"),
        ({"compute_capability": (6, 1)}, "needs compute capability 7.0", "nothing; a search leaves it out"),
        (ON_GPU | {"has_triton": False}, "needs triton on a GPU", pip_install("triton")),
        (
            ON_GPU | {"has_c_compiler": False},
            "needs a C compiler on a GPU",
            "install one, such as gcc, and search again",
        ),
        (
            ON_GPU | {"has_headers": False},
            "needs Python's headers (Python.h) on a GPU",
            "install them, such as python3-dev or python3-devel, and search again",
        ),
    ],
)
def test_missing_requirements_of_compiling_are_reported_with_a_remedy(lacking, detail, remedy) -> None:
    assert examine.compiling(Machine(8, **lacking)) == Capability("torch.compile", False, detail, remedy)


def test_requirements_of_the_other_kind_of_machine_do_not_matter() -> None:
    assert examine.compiling(Machine(8, has_triton=False, has_c_compiler=False, has_headers=False)).ok
    assert examine.compiling(Machine(8, (9, 0), has_compiler=False)).ok


def test_a_package_that_is_missing_says_how_to_install_it() -> None:
    assert examine.package("optuna").ok
    remedy = pip_install("no-such-package")
    missing = examine.package("no-such-package", "shows a study")
    assert missing == Capability("no-such-package", False, "not installed, shows a study", remedy)
    assert examine.package("no-such-package").remedy == remedy


@pytest.mark.usefixtures("fake_torch")
def test_recommended_packages_are_dependencies_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """The project is in no registry, so its optional packages are installed by their own names."""
    monkeypatch.setattr(examine, "version", Mock(side_effect=examine.PackageNotFoundError))
    remedies = [one.remedy.partition(" -m pip install ")[2] for one in examine.examine()]
    advised = {package for package in remedies if package}
    assert {"optuna-dashboard", "tensorboard", "wandb"} <= advised
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = itertools.chain(project["dependencies"], *project["optional-dependencies"].values())
    assert advised <= {re.split(r"[>\[]", requirement)[0] for requirement in required}


def test_the_table_wraps_within_its_columns() -> None:
    console = Console(width=80, force_terminal=True, color_system=None)
    long = Capability("NVIDIA driver", False, "words " * 20, "words " * 20)
    with console.capture() as capture:
        console.print(examine.table([Capability("Python", True, "3.11.7"), long]))
    first, *rest = capture.get().splitlines()
    assert first.rstrip() == "yes  Python         3.11.7"
    assert rest[0].startswith("no   NVIDIA driver  words")
    assert all(line.startswith(" " * 20) and len(line.rstrip()) <= 80 for line in rest[1:])
    assert any(line.strip().startswith("to do: words") for line in rest)


def test_the_enforcement_of_the_memory_limit_is_reported(tmp_path: Path) -> None:
    assert "v1" in examine.memory_limit(tmp_path).detail
    (tmp_path / "cgroup.controllers").touch()
    assert examine.memory_limit(tmp_path).detail == "enforced by the kernel: a control group (v2) per trial"
    without = examine.memory_limit(None)
    assert not without.ok
    assert without.detail.startswith("checked every 0.5 s")
