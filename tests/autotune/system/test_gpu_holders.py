"""The holders of GPU memory, by a fake NVML."""

from contextlib import contextmanager
from types import SimpleNamespace

import pynvml
import pytest

from autotune.system import devices, gpu_holders, nvml


@pytest.fixture
def driver(monkeypatch):
    """Two GPUs, with one process on both and one without a figure from NVML."""

    @contextmanager
    def library():
        yield True

    def running(handle):
        return [SimpleNamespace(pid=7, usedGpuMemory=10 * handle), SimpleNamespace(pid=8, usedGpuMemory=None)]

    monkeypatch.setattr(nvml, "library", library)
    monkeypatch.setattr(devices, "handles", lambda visible: [1, 2])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", running)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda handle: SimpleNamespace(used=100 * handle))
    return monkeypatch


def test_what_processes_hold_is_added_up_over_the_gpus(driver):
    assert gpu_holders.held_bytes() == {7: 30, 8: 0}
    assert gpu_holders.used_bytes() == 300


@pytest.mark.parametrize(
    "error", [pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST), pynvml.NVMLLibraryMismatchError()]
)
def test_a_gpu_that_refuses_to_answer_is_as_none(driver, error):
    def refuse(handle):
        raise error

    driver.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", refuse)
    assert gpu_holders.held_bytes() == {}
