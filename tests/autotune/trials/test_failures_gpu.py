"""Error messages of CUDA and its libraries with and without a lack of memory, as reported by users.

Each has its source, a thread of a public issue tracker.
"""

import signal
from dataclasses import replace

import pytest
import torch

from autotune.core.trial import Failure, Shortage, Status
from autotune.inside.messages import GpuLostError
from autotune.trials import failures
from autotune.trials.gpu_memory import GpuMemory

GIB = 2**30
ENOUGH = GpuMemory(8 * GIB, 5 * GIB, 2 * GIB, 6 * GIB, GIB, refusals=0)
SHORT = replace(ENOUGH, free_bytes=2**26, reserved_bytes=6 * GIB, elsewhere_before_bytes=2 * GIB)
TAKEN = replace(ENOUGH, free_bytes=2**26)

NVML = "NVML_SUCCESS == r INTERNAL ASSERT FAILED at "
ALWAYS = {
    "fal-ai/fal 478": NVML + '"../c10/cuda/CUDACachingAllocator.cpp":830, please report a bug to PyTorch. ',
    "pytorch/pytorch 121899": NVML + '"/opt/builds/pytorch/c10/cuda/CUDACachingAllocator.cpp":830, please',
    "pytorch/pytorch 112569": NVML + '"/opt/conda/conda-bld/pytorch_1695392035891/work/c10/cuda/'
    'CUDACachingAllocator.cpp":1154, please report a bug to PyTorch',
    "hpcaitech/Open-Sora 716, a MIG slice": NVML
    + '"../c10/cuda/CUDACachingAllocator.cpp":830, please report',
    "pytorch/pytorch 112950": "NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at "
    '"../c10/cuda/CUDACachingAllocator.cpp":1123, please report a bug to PyTorch.',
    "pp00704831/Stripformer 21": "CUDA out of memory. Tried to allocate 1.65 GiB (GPU 1; 7.79 GiB total "
    "capacity; 3.53 GiB already allocated; 1.40 GiB free; 5.28 GiB reserved in total by PyTorch)",
    "openxla/xla 7201": "NCCL operation ncclCommInitRank(...) failed: unhandled cuda error. Last "
    " NCCL warning(error) log entry (may be unrelated) 'Cuda failure 2 'out of memory''.",
    "of an older NCCL": "enqueue.cc:1085 NCCL WARN Cuda failure 'out of memory'",
    "patrickbryant1/AFProfile 8": "RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
    "4770354232 bytes.",
    "ecmwf-lab/ai-models-graphcast 18": "RESOURCE_EXHAUSTED: Failed to allocate request for 2.99GiB "
    "(3206250496B) on device ordinal 0",
}
UNLESS_THERE_IS_ENOUGH = {
    "QwenLM/Qwen 120": "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "of cublasLt": "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasLtCreate(&handle)`",
}
ONLY_WHERE_IT_IS_SHORT = {
    "Nerogar/OneTrainer 274": "GET was unable to find an engine to execute this computation",
    "facebookresearch/vggt 183": "FIND was unable to find an engine to execute this computation",
    "of cuDNN 9": "No valid engine configs for the graph",
    "pytorch/pytorch 108645": "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
    "pytorch/pytorch 81620": "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    "of cuBLAS": "CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasSgemm( handle, ...)`",
    "of cuSOLVER": "cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate`",
    "of a cuBLAS call": "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`",
    "of a cuDNN call": "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
}
NEVER = {
    "a launch": "CUDA error: unspecified launch failure",
    "a launch, by its name": "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure",
    "memory that has gone bad": "CUDA error: uncorrectable ECC error encountered",
    "an address": "CUDA error: an illegal memory access was encountered",
    "an index": "CUDA error: device-side assert triggered",
    "a kernel": "CUDA error: no kernel image is available for execution on the device",
    "a call of cuBLAS": "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasSgemm(...)`",
    "another assertion": 'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDAMiscFunctions.cpp"',
}


def kind(text, gpu):
    return failures.from_exception(RuntimeError(text), capped=False, gpu=gpu).failure


@pytest.mark.parametrize("text", ALWAYS.values(), ids=ALWAYS)
@pytest.mark.parametrize("gpu", [None, SHORT, ENOUGH])
def test_messages_of_allocators_are_out_of_memory(text, gpu):
    assert kind(text, gpu) is Failure.OOM


@pytest.mark.parametrize("text", UNLESS_THERE_IS_ENOUGH.values(), ids=UNLESS_THERE_IS_ENOUGH)
def test_a_handle_that_cannot_be_created_is_out_of_memory_unless_there_was_enough(text):
    assert (kind(text, None), kind(text, SHORT)) == (Failure.OOM, Failure.OOM)
    assert kind(text, ENOUGH) is Failure.ERROR


@pytest.mark.parametrize("text", ONLY_WHERE_IT_IS_SHORT.values(), ids=ONLY_WHERE_IT_IS_SHORT)
def test_a_missing_engine_means_memory_if_it_is_short(text):
    assert kind(text, SHORT) is Failure.OOM
    assert (kind(text, None), kind(text, ENOUGH)) == (Failure.ERROR, Failure.ERROR)


@pytest.mark.parametrize("text", NEVER.values(), ids=NEVER)
@pytest.mark.parametrize("gpu", [None, SHORT])
def test_other_faults_of_a_gpu_are_errors_however_full_it_is(text, gpu):
    assert kind(text, gpu) is Failure.ERROR


def test_an_out_of_memory_within_the_cap_after_others_took_more_is_theirs():
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 512.00 MiB.")
    found = failures.from_exception(error, gpu=TAKEN)
    assert (found.status, found.failure) == (Status.INTERRUPTED, Failure.LOST)
    assert failures.from_exception(error, gpu=replace(TAKEN, allowed_bytes=2 * GIB)).failure is Failure.OOM


def test_an_out_of_memory_of_the_host_is_not_the_gpus():
    assert failures.from_exception(MemoryError("no room"), gpu=TAKEN).failure is Failure.OOM


class ResourceExhaustedError(Exception):
    """TensorFlow's, which is no RuntimeError."""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("OOM when allocating tensor with shape[64,512,512] and type float on /device:GPU:0", Failure.OOM),
        ("{{function_node __wrapped__Mul_device_/GPU:0}} failed to allocate memory [Op:Mul]", Failure.OOM),
        ("Too many open files", Failure.ERROR),
    ],
)
def test_tensorflow_says_by_its_text_whether_memory_is_exhausted(text, kind):
    assert failures.from_exception(ResourceExhaustedError(text)).failure is kind


def test_a_cuda_error_of_the_pinning_thread_is_about_the_hosts_memory():
    text = "Caught RuntimeError in pin memory thread for device 0.\nRuntimeError: CUDA error: out of memory"
    found = failures.from_exception(RuntimeError(text), gpu=TAKEN)
    assert (found.failure, found.shortage) == (Failure.OOM, Shortage.MACHINE)


def test_an_abort_for_the_gpus_memory_is_not_the_machines():
    said = "what(): NCCL error: unhandled cuda error\nCuda failure 2 'out of memory'\n"
    found = failures.from_exit(-signal.SIGABRT, said, kernel_killed=False)
    assert (found.failure, found.shortage) == (Failure.OOM, None)


def test_a_lost_gpu_is_a_fault_of_the_machine():
    found = failures.from_exception(GpuLostError("torch cannot use it: Found no NVIDIA driver"))
    assert (found.status, found.failure) == (Status.INTERRUPTED, None)
    found = failures.from_exception(GpuLostError("torch cannot use it: CUDA error: out of memory"))
    assert (found.status, found.failure) == (Status.INTERRUPTED, Failure.LOST)
