"""The GPUs that a search uses on made-up machines, judged by what NVML and torch report of each.

The real pynvml reads a made-up library. Only one test asks torch in a process of its own.
"""

import os
import sys
from shlex import quote

import pynvml
import pytest

from autotune.core.errors import InputError
from autotune.core.shell import pip_install
from autotune.doctor import examine
from autotune.sessions import gpus
from autotune.sessions.gpus import Fault, Torch
from autotune.space import machine as machines
from tests.gpu.fake_nvml import NO_KERNELS, FakeGpu, driver_node, fake_gpus, hang, nvml_library
from tests.gpu.fake_torch import fake_torch

__all__ = ["driver_node", "fake_gpus", "fake_torch", "hang", "nvml_library"]

GIB = 2**30
FORBIDDEN, LOST = pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_GPU_IS_LOST
A100 = FakeGpu(name="NVIDIA A100", gib=80, capability=(8, 0))
RTX = FakeGpu(name="NVIDIA RTX 4090", gib=24)
GTX = FakeGpu(name="NVIDIA GeForce GTX 1080", capability=(6, 1), raises=NO_KERNELS)


@pytest.fixture
def machine(fake_gpus, fake_torch, monkeypatch):
    """A machine with these GPUs, and a fake torch that answers for them at once."""

    def make(*found, visible=None, order=None, **torch):
        fake_gpus(*found, visible=visible)
        if order:
            monkeypatch.setenv("CUDA_DEVICE_ORDER", order)
        fake_torch.changes, fake_torch.asked = torch, []
        return fake_torch.asked

    return make


def shown():
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def test_without_a_gpu_torch_is_not_checked(machine):
    asked = machine()
    found = gpus.usable(None)
    assert (found.gpus_per_trial, found.hardware.gpus, found.notes, asked) == (0.0, (), (), [])
    assert shown() is None


@pytest.mark.parametrize("there", [[RTX], [RTX, RTX], [GTX, A100], [A100, RTX]], ids=len)
def test_gpus_that_all_compute_are_left_as_they_are_and_numbered_as_nvml_does(machine, there):
    there = [gpu if gpu is not GTX else FakeGpu(capability=(7, 5)) for gpu in there]
    asked = machine(*there)
    found = gpus.usable(None)
    assert [gpu.name for gpu in found.hardware.gpus] == [gpu.name for gpu in there]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in asked] == [gpu.uuid for gpu in found.hardware.gpus]
    assert shown() is None
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert found.machine.compute_capability == min(gpu.capability for gpu in there)


def test_unlike_gpus_are_named_in_one_line(machine):
    machine(A100, RTX, A100)
    (note,) = gpus.usable(None).notes
    assert note.startswith("NVIDIA A100 and NVIDIA RTX 4090: figures of one are not compared with those of ")
    assert note.endswith("name its GPUs in CUDA_VISIBLE_DEVICES")
    machine(A100, A100)
    assert gpus.usable(None).notes == ()


BUSY = FakeGpu(name=A100.name, gib=80, used_gib=79)


def test_a_gpu_whose_memory_others_use_does_not_limit_all_trials(machine):
    machine(BUSY, A100)
    found = gpus.usable(None)
    assert (found.hardware.free_device_bytes, shown()) == (80 * GIB, A100.uuid(1))
    (note,) = found.notes
    assert note.startswith("GPU 0 is left out: others use 79.0 GiB of its 80.0 GiB; to search on it too, ")


@pytest.mark.parametrize(
    ("there", "visible", "count"),
    [
        ([BUSY, A100], "0,1", None),  # they are asked for by name
        ([BUSY, A100], None, 2),  # by their number
        ([BUSY, BUSY], None, None),  # none has more room
        ([A100, RTX], None, None),  # a smaller one that nobody else uses
        ([A100, FakeGpu(name=A100.name, gib=80, used_gib=30)], None, None),
    ],
)
def test_a_gpu_is_used_if_it_is_asked_for_or_has_half_of_its_memory_free(machine, there, visible, count):
    machine(*there, visible=visible)
    assert len(gpus.usable(count).hardware.gpus) == 2


@pytest.mark.parametrize(("there", "visible"), [([BUSY], None), ([BUSY, BUSY], None), ([A100, BUSY], "0,1")])
def test_a_full_gpu_that_is_used_nevertheless_is_named(machine, there, visible):
    machine(*there, visible=visible)
    (note,) = gpus.usable(None).notes
    limited = "others use 79.0 GiB of its 80.0 GiB, and every trial is limited to what is left"
    assert note == f"GPU {len(there) - 1 if visible else 0}: {limited}"


def test_a_torch_for_other_gpus_is_named_unless_the_cpu_is_asked_for(machine, tmp_path, monkeypatch):
    machine()
    installed = tmp_path / "torch-2.9.0+rocm6.4.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0+rocm6.4\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert gpus.usable(None).notes == (
        "torch 2.9.0+rocm6.4 is for AMD's GPUs; a search uses only NVIDIA's: trials run on the CPU",
    )
    assert gpus.usable(0).notes == ()


def test_a_driver_that_hangs_ends_the_search_in_a_line_and_torch_does_not_wait_for_it(machine, hang):
    asked = machine(RTX)
    hang()
    with pytest.raises(
        InputError, match=r"NVIDIA driver is left out: it has not .* Xid error; restart the m"
    ):
        gpus.usable(None)
    found = [(one.name, one.remedy) for one in examine.examine() if not one.ok]
    assert found[:2] == [("torch", "see the driver"), ("NVIDIA driver", "restart the machine")]
    assert not asked


def test_without_gpus_per_trial_they_are_not_checked(machine):
    asked = machine(RTX, FakeGpu(fails={"Handle": LOST}))
    found = gpus.usable(0)
    assert (found.hardware.gpus, found.notes, asked) == ((), (), [])
    assert found.machine.compute_capability is None


@pytest.mark.parametrize(
    ("error", "words"),
    [(LOST, "GPU is lost"), (FORBIDDEN, "Insufficient Permissions"), (999, "Unknown Error")],
)
def test_a_gpu_that_nvml_cannot_query_is_hidden_from_cuda_too(machine, error, words):
    machine(RTX, FakeGpu(fails={"Handle": error}), A100)
    found = gpus.usable(None)
    assert [gpu.name for gpu in found.hardware.gpus] == [RTX.name, A100.name]
    assert shown() == f"{RTX.uuid(0)},{A100.uuid(2)}"
    note, _ = found.notes
    assert note.startswith(f"GPU 1 is left out: {words}; nvidia-smi ")


def test_facts_that_nvml_lacks_come_from_torch(machine):
    machine(
        FakeGpu(name="NVIDIA A", gib=24, capability=(9, 0), fails={"MemoryInfo": FORBIDDEN, "Name": LOST})
    )
    (gpu,) = gpus.usable(None).hardware.gpus
    assert (gpu.name, gpu.memory_bytes, gpu.compute_capability) == ("NVIDIA A", 24 * GIB - 2**20, (9, 0))
    assert shown() == gpu.uuid


def test_every_slice_is_checked_and_assigned_by_its_uuid(machine):
    divided = FakeGpu(name="NVIDIA A100", gib=80, slices=3, fails={"MemoryInfo": FORBIDDEN})
    asked = machine(divided)
    found = gpus.usable(None)
    uuids = [divided.uuid(0, i) for i in range(3)]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in asked] == uuids
    assert shown() == ",".join(uuids)
    assert found.hardware.device_bytes == 20 * GIB, "not the 80 of the whole"


def test_a_gpu_that_torch_has_no_kernels_for_is_left_out(machine):
    machine(GTX, RTX)
    found = gpus.usable(None)
    assert ([gpu.name for gpu in found.hardware.gpus], shown()) == ([RTX.name], RTX.uuid(1))
    (note,) = found.notes
    why = f"torch 2.13.0, CUDA 13.0 cannot compute on it: {NO_KERNELS.splitlines()[0]}"
    assert note.startswith(f"GPU 0 is left out: {why}; install a build for compute capability 6.1: https://")
    assert note.endswith("whl/cu126")


def test_gpus_with_the_same_fault_are_named_in_one_line(machine):
    machine(GTX, RTX, GTX)
    (note,) = gpus.usable(None).notes
    assert note.startswith("GPU 0, GPU 2 are left out: torch ")


@pytest.mark.parametrize(
    ("there", "said", "words"),
    [
        ([GTX], {}, "no GPU can be used: GPU 0 is left out: torch .* a build for compute capability 6.1"),
        (
            [FakeGpu(raises="CUDA error: busy")],
            {},
            "GPU 0 is left out: torch .* cannot compute on it: CUDA error: busy",
        ),
        ([FakeGpu(fails={"Handle": LOST})], {}, "no GPU can be used: GPU 0 is left out: GPU is lost"),
        (
            [RTX],
            {"cuda": None, "devices": []},
            "torch 2.13.0, CPU build does not see it; install torch's CUDA build",
        ),
        (
            [RTX],
            {"devices": [], "fault": "too old"},
            "torch 2.13.0, CUDA 13.0 does not see it: too old; nvidia-smi must",
        ),
    ],
)
def test_without_a_usable_gpu_the_cpu_is_used_only_on_request(machine, there, said, words):
    machine(*there, **said)
    with pytest.raises(InputError, match=f"{words}.*; or search on the CPU: --gpus-per-trial 0$"):
        gpus.usable(None)
    assert gpus.usable(0).gpus_per_trial == 0


@pytest.mark.parametrize("names", ["MIG-mistyped", "3", "GPU-mistyped"])
def test_a_named_device_that_does_not_exist_is_reported(machine, names):
    machine(RTX, visible=names)
    with pytest.raises(InputError, match=rf"{names}.* is left out: .*--gpus-per-trial 0"):
        gpus.usable(None)


def test_if_every_gpu_is_hidden_the_search_runs_on_the_cpu(machine):
    asked = machine(RTX, visible="")
    assert (gpus.usable(None).gpus_per_trial, asked) == (0.0, [])


def test_a_faulty_driver_does_not_count_as_no_gpu(machine, monkeypatch):
    machine(RTX)
    monkeypatch.setenv("FAKE_NVML_INIT", str(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))
    advice = r"restart the machine; or search on the CPU: --gpus-per-trial 0"
    with pytest.raises(InputError, match=rf"NVIDIA driver is left out: .*mismatch.*; {advice}"):
        gpus.usable(None)
    rows = [(one.ok, one.remedy) for one in examine.examine() if one.name == "NVIDIA driver"]
    assert rows == [(False, "restart the machine")]


def test_a_driver_without_a_gpu_is_no_hidden_gpu(machine):
    machine()
    (found,) = (one for one in examine.examine() if one.name == "GPU")
    assert (found.ok, found.detail) == (False, "the driver finds none")
    machine(RTX, visible="")
    (found,) = (one for one in examine.examine() if one.name == "GPU")
    assert (found.detail, found.remedy) == (
        "none visible: CUDA_VISIBLE_DEVICES is ''",
        "unset CUDA_VISIBLE_DEVICES",
    )


def test_a_gpu_that_torch_sees_and_nvml_does_not_is_reported(machine, driver_node, monkeypatch):
    """As in a container with CUDA but without the driver's tools."""
    machine(RTX)
    monkeypatch.setenv("FAKE_NVML_INIT", str(pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
    assert gpus.usable(None).hardware.gpus == (), "there is no device"
    driver_node.touch()
    with pytest.raises(InputError, match=r"sees 1 GPUs, but NVML cannot be read.*compute,utility"):
        gpus.usable(None)
    machine(RTX, devices=[])
    assert gpus.usable(None).hardware.gpus == (), "torch sees none either"


def test_numbers_are_those_of_nvidia_smi_in_any_order(machine):
    machine(FakeGpu(name="NVIDIA T4", capability=(7, 5)), RTX, visible="0", order="FASTEST_FIRST")
    found = gpus.usable(None)
    assert [gpu.name for gpu in found.hardware.gpus] == ["NVIDIA T4"]
    assert (shown(), os.environ["CUDA_DEVICE_ORDER"]) == ("0", "PCI_BUS_ID")


def test_a_gpu_for_one_process_at_a_time_is_not_shared(machine):
    machine(RTX, FakeGpu(mode=pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS))
    with pytest.raises(InputError, match=r"--gpus-per-trial: .*GPU 1 is in exclusive compute mode, got 0.5"):
        gpus.usable(0.5)
    assert gpus.usable(1).gpus_per_trial == 1


def test_a_precision_that_a_gpu_fails_in_is_left_out_of_the_search(machine, space):
    machine(RTX, fails={"fp16": "CUBLAS_STATUS_NOT_SUPPORTED"})
    found = gpus.usable(None).machine
    _, dropped = machines.fit_to(space, found)
    assert "precision fp16: dropped, fails on GPU 0: CUBLAS_STATUS_NOT_SUPPORTED" in dropped
    assert not any(line.startswith("precision bf16") for line in dropped)


def test_doctor_shows_the_facts_about_gpus_that_a_search_uses(machine):
    machine(GTX, RTX, FakeGpu(fails={"Handle": LOST}), fails={})
    found = {one.name: one for one in examine.examine()}
    said = {
        name: (found[name].ok, found[name].detail) for name in ("torch", "GPU 1", "GPU 2", "NVIDIA driver")
    }
    assert said == {
        "torch": (True, "2.13.0, CUDA 13.0"),
        "GPU 1": (True, "NVIDIA RTX 4090, 24.0 GiB, compute capability 8.9"),
        "GPU 2": (False, "GPU is lost"),
        "NVIDIA driver": (True, "580.95.05"),
    }
    assert found["GPU 0"].detail.startswith("NVIDIA GeForce GTX 1080, 8.0 GiB, compute capability 6.1; torch")
    assert (found["bf16"].ok, found["torch.compile"].detail) == (True, "needs triton on a GPU")
    assert [gpu.name for gpu in gpus.usable(None).hardware.gpus] == [RTX.name]


@pytest.mark.slow
def test_torch_checks_every_device(fake_gpus):
    """Runs the real check with a fake torch that has these GPUs, and no kernels for one of them."""
    fake_gpus(GTX, RTX)
    told = gpus.ask({})
    assert isinstance(told, Torch)
    assert [one["name"] for one in told.devices] == [GTX.name, RTX.name]
    assert set(told.devices[0]["fails"].values()) == {NO_KERNELS.splitlines()[0]}
    assert told.devices[1]["fails"] == {}
    assert (told.cuda, told.fault, told.kernels[0]) == ("13.0", None, "sm_75")


def test_a_torch_that_cannot_be_imported_has_a_reason(tmp_path):
    (tmp_path / "torch.py").write_text("import no_such_module")
    told = gpus.ask({"PYTHONPATH": str(tmp_path)})
    assert isinstance(told, Fault)
    assert told.what.startswith("`import torch` fails: ")
    assert told.remedy == pip_install("--force-reinstall torch")


@pytest.mark.slow
def test_a_scripts_python_without_torch_is_accepted(fake_gpus, tmp_path):
    """The script's torch is not checked at all if the tuner's was not, or if both are the same."""
    fake_gpus(RTX)
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {quote(sys.executable)} -I -S "$@"\n')
    bare.chmod(0o755)
    assert gpus.ask({}, str(bare)).what.endswith("No module named 'torch'")
    gpus.require_script(str(bare), gpus.usable(None))
    for python, asked in ((None, None), (sys.executable, None), ("/no/python", 0.0)):
        gpus.require_script(python, gpus.usable(asked))
