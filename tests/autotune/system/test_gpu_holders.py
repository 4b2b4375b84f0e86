"""The holders of GPU memory, read by the real pynvml from a library of made-up GPUs."""

import pynvml
import pytest

from autotune.system import gpu_holders
from tests.gpu.fake_nvml import FakeGpu, fake_gpus, nvml_library

__all__ = ["fake_gpus", "nvml_library"]

GIB = 2**30


def test_what_processes_hold_is_added_up_over_the_gpus(fake_gpus):
    fake_gpus(FakeGpu(pid=7, used_gib=1), FakeGpu(pid=7, used_gib=2), FakeGpu(pid=8))
    assert gpu_holders.held_bytes() == {7: 3 * GIB, 8: 0}
    assert gpu_holders.used_bytes() == 3 * GIB


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH])
def test_if_a_gpu_does_not_answer_nothing_is_known_to_be_held(fake_gpus, error):
    fake_gpus(FakeGpu(pid=7), FakeGpu(pid=7, fails={"ComputeRunningProcesses": error}))
    assert gpu_holders.held_bytes() == {}
