"""The fake NVML is one to those who ask the real one: pynvml, Ray's copy of it, and torch."""

import json
import subprocess
import sys

import pynvml
import pytest

from autotune.system import devices, nvml
from tests.gpu.fake_nvml import FakeGpu, fake_gpus, nvml_library

__all__ = ["fake_gpus", "nvml_library"]

ASK = """
import json
import torch.cuda
from ray._private.accelerators.nvidia_gpu import NvidiaGPUAcceleratorManager as ray
count = ray.get_current_node_num_accelerators()
print(json.dumps([count, ray.get_current_node_accelerator_type(), torch.cuda._raw_device_uuid_nvml()]))
"""


def test_pynvml_reads_what_the_environment_says(fake_gpus):
    fake_gpus(FakeGpu(name="NVIDIA A", gib=24, used_gib=3, pid=7, busy=80, reasons=0x20))
    with devices.opened() as (handle,):
        reading = nvml.read(handle)
        busy = nvml.load_by_others(handle, {1}, 1.0), nvml.load_by_others(handle, {7}, 1.0)
        assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA A"
    assert reading.keys() == nvml._QUERIES.keys(), "every figure can be had"
    assert (reading["gpu_memory_used_bytes"], reading["gpu_throttled"]) == (3 * 2**30, 1.0)
    assert busy == ({}, {"others_gpu_percent": 0.0})


def test_a_function_fails_as_configured(fake_gpus):
    fake_gpus(FakeGpu(), FakeGpu(fails={"Handle": pynvml.NVML_ERROR_GPU_IS_LOST, "Name": 4}))
    with nvml.library():
        assert pynvml.nvmlDeviceGetCount() == 2
        pynvml.nvmlDeviceGetHandleByIndex(0)
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetHandleByIndex(1)


@pytest.mark.slow
def test_ray_and_torch_find_the_same_gpus(fake_gpus):
    gpus = FakeGpu(name="NVIDIA A100-SXM4-80GB"), FakeGpu()
    fake_gpus(*gpus)
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    uuids = [gpu.uuid(index) for index, gpu in enumerate(gpus)]
    assert json.loads(done.stdout) == [2, "A100", uuids]
