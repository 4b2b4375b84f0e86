"""Texts by which errors and logs tell why a trial failed, if types and exit codes do not."""

import re

# Out-of-memory messages: of CUDA and what builds on it (NCCL, JAX, TensorFlow), the CPU allocator, the C
# library, C++, a compiler, a loader's worker that ran out of memory or was killed for it, a command that was
# killed, and /dev/shm.
OOM = re.compile(
    r"(CUDA|HIP|XPU|MPS backend) out of memory"
    r"|(CUDA|HIP|CUDA driver|Triton|NCCL)\b[^\n]{0,40}\b(error|Error)\b[^\n]{0,80}\bout of memory"
    r"|CU(BLAS|DNN|SPARSE|SOLVER)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED"
    r"|CUDNN_STATUS_INTERNAL_ERROR_(HOST|DEVICE)_ALLOCATION_FAILED"
    r"|CUDNN_STATUS_\w+[^\n]*out of memory"
    r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|Cuda failure (\d+ )?'out of memory'"
    r"|RESOURCE_EXHAUSTED: [^\n]*([Oo]ut of memory|[Ff]ailed to allocate)"
    r"|OOM when allocating|[Ff]ailed to allocate memory \[Op:"
    r"|NVML_SUCCESS == [^\n]{0,120}INTERNAL ASSERT FAILED[^\n]{0,120}CUDACachingAllocator"
    r"|can't allocate memory|[Cc]annot allocate memory(?! in static TLS block)"
    r"|DefaultCPUAllocator: not enough memory|OpenBLAS error: Memory allocation still failed"
    r"|Could not allocate memory (for|to change) Tensor"
    r"|std::bad_alloc"
    r"|[Oo]ut of memory allocating \d+ bytes"
    r"|Caught \w*MemoryError in "
    r"|DataLoader worker \(pid[^)]*\) is killed by signal: (Killed|Bus error)"
    r"|command \(pid \d+\) is killed by signal: Killed"
    r"|insufficient shared memory"
    r"|(shared memory|/torch_)[^\n]*No space left on device"
)
# Other failures for lack of memory under a cap, imports included; without a cap they have other causes.
CAPPED = re.compile(
    r"could not (create|execute) a primitive"
    r"|(failed to map segment from shared object|cannot map zero-fill pages)(?!:)"
    r"|Unable to (create type object|instantiate PyTypeObject)"
)
# The kernel refuses a thread or a process: too many of them, unless a cap leaves no memory for its stack.
THREADS = re.compile(
    r"can't start new thread|pthread_create\b[^\n]*(failed|Resource temporarily unavailable)"
    r"|[Tt]hread creation failed: Resource temporarily unavailable|code: 11, kind: WouldBlock"
    r"|[Ff]ork: (retry: )?Resource temporarily unavailable|[Cc](annot|an't) fork\b"
    r"|(what\(\): +|\A)Resource temporarily unavailable\b"
)
# A GPU library that cannot be initialized: for lack of memory, unless there was enough.
HANDLE = re.compile(r"CUBLAS_STATUS_NOT_INITIALIZED when calling `cublas(Lt)?Create")
# Errors of GPU libraries for lack of memory, among many other causes.
ENGINE = re.compile(
    r"unable to find an engine to execute this computation|No valid engine configs"
    r"|CUDNN_STATUS_NOT_INITIALIZED|CU(BLAS|DNN|SOLVER)_STATUS_(INTERNAL_ERROR|EXECUTION_FAILED)"
)
OF_GPU = re.compile(r"\b(CUDA|Cuda|Triton)|CU(BLAS|DNN|SPARSE|SOLVER|FFT)_|NVML_")
ASKED = re.compile(r"Tried to allocate (\d+(?:\.\d+)? [KMGT]iB)")
# The memory that ran out is the host's, shared with the loader's workers, not the training process's own. A
# loader pins the host's memory by CUDA, whose error is that of a full GPU.
SHARED = re.compile(r"DataLoader worker|shared memory|/torch_|killed by |pin memory thread")
KILLED_WORKER = re.compile(r"(DataLoader worker|command) \(pid[^)]*\) is killed by signal: Killed")
# Errors of the links between GPUs.
NCCL = re.compile(
    r"\bNCCL\b[^\n]*\b([Ee]rror|timed? ?out)|nccl(System|Remote|Internal|UnhandledCuda)Error"
    r"|collective operation timeout"
)
# Transient faults, which another attempt may not meet: of these links, a kernel launch, a disk or network
# behind the data, or one of the loader's workers.
PASSING = re.compile(
    rf"{NCCL.pattern}"
    r"|CUDA error: (unspecified launch failure|the launch timed out|unknown error|uncorrectable ECC error)"
    r"|CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_EXECUTION_FAILED"
    r"|DataLoader worker \(pid(\(s\))?[^)]*\) (exited unexpectedly|is killed by signal)"
    r"|DataLoader timed out"
    r"|Input/output error|Stale file handle|Transport endpoint is not connected|Remote I/O error"
    r"|Connection (reset|refused|aborted|timed out)|Connection broken|Remote end closed connection"
    r"|Temporary failure in name resolution|Read timed out|Network is unreachable"
)
