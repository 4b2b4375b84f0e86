"""Device enumeration by the real pynvml over a library of made-up GPUs."""

from types import SimpleNamespace

import psutil
import pynvml
import pytest

from autotune.system import devices, nvml, telemetry
from autotune.system.telemetry import Telemetry
from tests.gpu.fake_nvml import FakeGpu, driver_node, fake_gpus, hang, nvml_library

__all__ = ["driver_node", "fake_gpus", "hang", "nvml_library"]

GIB = 2**30
FORBIDDEN, LOST = pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_GPU_IS_LOST
UNSUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED


def labels(names=None):
    return [device.label for device in devices.list_visible(names)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("1", [1]),
        ("2,0", [2, 0]),
        (" 2 , 0 ", [2, 0]),
        ("0,7,1", [0, None]),  # CUDA stops at the first missing device
        ("0,0", [0, None]),
        ("GPU-00000002", [2]),
        ("GPU-00000002,1", [2, 1]),
        ("GPU-0", [None]),  # ambiguous prefix
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(fake_gpus, names, expected):
    fake_gpus(FakeGpu(), FakeGpu(), FakeGpu())
    bad = f"CUDA_VISIBLE_DEVICES={names}"
    assert labels(names) == [bad if number is None else f"GPU {number}" for number in expected]


def test_every_gpu_has_its_identity(fake_gpus):
    fake_gpus(FakeGpu(name="NVIDIA A", gib=24, capability=(9, 0)), FakeGpu(mode=3))
    first, second = (device.gpu for device in devices.list_visible(None))
    assert (first.name, first.memory_bytes, first.compute_capability) == ("NVIDIA A", 24 * GIB, (9, 0))
    assert (first.uuid, first.exclusive, second.exclusive) == (FakeGpu().uuid(0), False, True)


@pytest.mark.parametrize("error", [LOST, FORBIDDEN, UNSUPPORTED, pynvml.NVML_ERROR_UNKNOWN])
@pytest.mark.parametrize("function", ["Handle", "UUID", "Name", "CudaComputeCapability"])
def test_a_device_that_does_not_answer_costs_itself_alone(fake_gpus, function, error):
    fake_gpus(FakeGpu(), FakeGpu(fails={function: error}), FakeGpu())
    found = {device.label: device for device in devices.list_visible(None)}
    assert found["GPU 0"].gpu
    assert found["GPU 2"].gpu
    assert found["GPU 1"].gpu is None
    assert found["GPU 1"].refused == str(pynvml.NVMLError(error))
    seen = telemetry.hardware()
    assert ([gpu.uuid for gpu in seen.gpus], [one.label for one in seen.refused]) == (
        [FakeGpu().uuid(0), FakeGpu().uuid(2)],
        ["GPU 1"],
    )


def test_inaccessible_devices_are_not_counted_as_in_cuda(fake_gpus):
    forbidden = FakeGpu(fails={"Handle": FORBIDDEN})
    fake_gpus(forbidden, FakeGpu(name="NVIDIA B"), FakeGpu(name="NVIDIA C"))
    assert [device.name for device in devices.list_visible("1")] == ["NVIDIA C"]
    assert labels("0") == ["GPU 1"]
    assert labels() == ["GPU 1", "GPU 2", "GPU 0"]


def test_a_gpu_that_was_lost_keeps_its_number(fake_gpus):
    fake_gpus(FakeGpu(), FakeGpu(fails={"Handle": LOST}), FakeGpu())
    assert labels("2") == ["GPU 2"]
    assert [device.gpu for device in devices.list_visible("1")] == [None]


def test_an_integrated_gpu_has_the_hosts_memory_without_what_the_host_needs(fake_gpus, monkeypatch):
    host = SimpleNamespace(total=64 * GIB, available=40 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: host)
    fake_gpus(FakeGpu(fails={"MemoryInfo": UNSUPPORTED}))
    found = telemetry.hardware()
    assert (found.device_bytes, found.free_device_bytes) == (64 * GIB, (40 - 8) * GIB)
    host.available = 2 * GIB
    assert telemetry.hardware().free_device_bytes == 0


def test_a_gpu_that_mps_shares_is_not_exclusive(fake_gpus, monkeypatch, tmp_path):
    fake_gpus(FakeGpu(mode=pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS))
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert telemetry.hardware().gpus[0].exclusive
    (tmp_path / "control").touch()
    assert not telemetry.hardware().gpus[0].exclusive


def test_a_driver_that_hangs_is_left_alone_in_time(fake_gpus, driver_node, hang):
    fake_gpus(FakeGpu())
    driver_node.touch()
    assert [gpu.name for gpu in telemetry.hardware().gpus] == [FakeGpu().name]
    hang()
    found = telemetry.hardware()
    assert ([one.label for one in found.refused], found.gpus, found.driver) == (["NVIDIA driver"], (), None)
    assert found.refused[0].refused.startswith("it has not answered within 20 s: ")


def test_a_driver_that_hangs_is_not_asked_for_hidden_gpus_and_does_not_keep_a_trial_alive(
    fake_gpus, hang, monkeypatch
):
    fake_gpus(FakeGpu(pid=7, used_gib=1))
    assert devices.held_bytes() == {7: GIB}
    hang()
    assert (devices.held_bytes(), devices.used_bytes()) == ({}, 0)
    for hidden in ("", "-1"):
        monkeypatch.setenv(devices.VISIBLE, hidden)
        assert telemetry.device() == telemetry.cpu_model()
        with devices.opened() as visible:
            assert visible == []


def test_a_gpu_without_known_memory_keeps_its_name(fake_gpus):
    fake_gpus(FakeGpu(name="NVIDIA A", fails={"MemoryInfo": FORBIDDEN}))
    (device,) = devices.list_visible(None)
    assert (device.gpu, device.name, device.uuid) == (None, "NVIDIA A", FakeGpu().uuid(0))
    assert telemetry.device() == "NVIDIA A"


def test_slices_are_devices_and_their_parent_is_none(fake_gpus):
    """As in a container that was given slices: the parent's memory is not accessible there."""
    divided = FakeGpu(
        name="NVIDIA A100", gib=80, slices=2, capability=(8, 0), fails={"MemoryInfo": FORBIDDEN}
    )
    fake_gpus(divided, FakeGpu(gib=24))
    first, second, third = (device.gpu for device in devices.list_visible(None))
    assert [first.uuid, second.uuid] == [divided.uuid(0, 0), divided.uuid(0, 1)]
    assert first.memory_bytes < 80 / 2 * GIB
    assert (first.name, first.compute_capability) == ("NVIDIA A100 MIG 1g", (8, 0))
    assert third.memory_bytes == 24 * GIB
    assert labels("0") == ["GPU 0 MIG 0", "GPU 0 MIG 1"]
    assert labels(first.uuid) == [first.uuid]


def test_a_slice_has_its_parents_compute_capability_by_default(fake_gpus):
    fails = {"MigCudaComputeCapability": pynvml.NVML_ERROR_INVALID_ARGUMENT}
    divided = FakeGpu(slices=1, capability=(9, 0), fails=fails)
    fake_gpus(divided)
    for names in (None, divided.uuid(0, 0)):
        assert [device.gpu.compute_capability for device in devices.list_visible(names)] == [(9, 0)]


@pytest.mark.parametrize("function", ["slices", "MaxMigDeviceCount", "MigDeviceHandle"])
def test_a_gpu_in_mig_mode_whose_slices_cannot_be_seen_is_no_device(fake_gpus, function):
    lacking = {"slices": 0} if function == "slices" else {"slices": 2, "fails": {function: FORBIDDEN}}
    fake_gpus(FakeGpu(**lacking))
    (device,) = devices.list_visible(None)
    assert (device.gpu, device.refused) == (None, "it is in MIG mode, without a slice")


@pytest.mark.parametrize("names", ["MIG-mistyped", "7", "GPU-mistyped", "0,7"])
def test_an_invalid_device_name_is_reported(fake_gpus, names):
    fake_gpus(FakeGpu(), visible=names)
    assert devices.list_visible(names)[-1].refused
    assert telemetry.hardware().refused


@pytest.mark.parametrize("names", ["", "-1", "NoDevFiles", "0,-1"])
def test_naming_no_device_is_valid(fake_gpus, names):
    fake_gpus(FakeGpu(), visible=names)
    assert telemetry.hardware().refused == ()


def test_a_trial_on_a_gpu_that_is_lost_is_not_one_on_the_cpu(fake_gpus):
    fake_gpus(FakeGpu(fails={"Handle": LOST}), visible="0")
    assert telemetry.device() == "GPU 0"
    fake_gpus(FakeGpu(), visible="")
    assert telemetry.device() == telemetry.cpu_model()


def test_telemetry_outlives_a_gpu_that_is_lost(fake_gpus, caplog):
    fake_gpus(FakeGpu(busy=30), FakeGpu(fails={"Handle": LOST}))
    with Telemetry(psutil.Process().pid, interval_s=60) as watch:
        pass
    assert watch.summary()["gpu_utilisation_percent"] == 30.0
    assert not caplog.records


def test_devices_that_cannot_be_counted_are_reported_as_present(fake_gpus):
    fake_gpus(FakeGpu(fails={"Count": LOST}))
    (device,) = devices.list_visible(None)
    assert (device.label, device.refused) == ("GPUs", "GPU is lost")


def test_a_faulty_driver_is_not_a_missing_one(fake_gpus, monkeypatch):
    fake_gpus(FakeGpu())
    monkeypatch.setenv("FAKE_NVML_INIT", str(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))
    (device,) = devices.list_visible(None)
    assert (device.label, nvml.driver()) == ("NVIDIA driver", None)
    assert device.refused == str(nvml.error())
    assert devices.list_visible("") == (), "it is not asked for"
    monkeypatch.setenv("FAKE_NVML_INIT", str(pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
    assert devices.list_visible(None) == ()
    assert nvml.error()


def test_what_processes_hold_is_added_up_over_the_gpus(fake_gpus):
    fake_gpus(FakeGpu(pid=7, used_gib=1), FakeGpu(pid=7, used_gib=2), FakeGpu(pid=8))
    assert devices.held_bytes() == {7: 3 * GIB, 8: 0}
    assert devices.used_bytes() == 3 * GIB


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH])
def test_if_a_gpu_does_not_answer_nothing_is_known_to_be_held(fake_gpus, error):
    fake_gpus(FakeGpu(pid=7), FakeGpu(pid=7, fails={"ComputeRunningProcesses": error}))
    assert devices.held_bytes() == {}
