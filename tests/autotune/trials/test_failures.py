import errno
import os
import signal
import traceback
from dataclasses import asdict

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from autotune.core.trial import Failure, Outcome, Status
from autotune.trials import failures


def caused(outer: BaseException, inner: BaseException) -> BaseException:
    outer.__cause__ = inner
    return outer


def in_the_handling_of(outer: BaseException, inner: BaseException) -> BaseException:
    outer.__context__ = inner
    return outer


def in_a_circle() -> BaseException:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


def numpy_refuses() -> BaseException:
    try:
        np.zeros(2**60, dtype=np.uint8)
    except MemoryError as error:
        return error
    raise AssertionError("there was room for an exbibyte")


def torch_refuses() -> BaseException:
    try:
        torch.empty(2**60, dtype=torch.uint8)
    except RuntimeError as error:
        return error
    raise AssertionError("there was room for an exbibyte")


OUT_OF_MEMORY = {
    "torch's own": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    "CUDA, not through torch's allocator": RuntimeError("CUDA error: out of memory\nCompile with ..."),
    "CUDA driver": RuntimeError("CUDA driver error: out of memory"),
    "cuBLAS": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "cuDNN 8": RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    "cuDNN 9, device": RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    "cuDNN 9, host": RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
    "torch on the CPU, as recorded": RuntimeError(
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
        " to allocate 512 bytes. Error code 12 (Cannot allocate memory)"
    ),
    "torch on the CPU, here and now": torch_refuses(),
    "oneDNN, creating": RuntimeError("could not create a primitive"),
    "oneDNN, executing": RuntimeError("could not execute a primitive"),
    "C++ through pybind": RuntimeError("std::bad_alloc"),
    "Python": MemoryError(),
    "NumPy": numpy_refuses(),
    "an error set in C, result missing": SystemError(
        "std::bad_alloc returned a result with an exception set"
    ),
    "a loader's worker": MemoryError("Caught MemoryError in DataLoader worker process 0.\nOriginal ..."),
    "a loader's worker, C++": RuntimeError(
        "Caught RuntimeError in DataLoader worker process 1.\n... DefaultCPUAllocator: can't allocate memory"
    ),
    "a loader's worker, wrapped": RuntimeError("Caught MemoryError in DataLoader worker process 3."),
    "a loader's worker could not fork": OSError(
        "Caught OSError in DataLoader worker process 0.\n...\nOSError: [Errno 12] Cannot allocate memory"
    ),
    "a killed worker": RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed. "),
    "a worker without shared memory": RuntimeError(
        "DataLoader worker (pid 12) is killed by signal: Bus error. It is possible that dataloader's workers"
        " are out of shared memory. Please try to raise your shared memory limit."
    ),
    "older wording of it": RuntimeError("unexpected bus error ... insufficient shared memory (shm)."),
    "no room in /dev/shm": RuntimeError(
        "unable to write to file </torch_12_34_0>: No space left on device (28)"
    ),
    "no room in /dev/shm to reserve": RuntimeError(
        "unable to allocate shared memory(shm) for file </torch_12_34_0>: No space left on device (28)"
    ),
    "a system call": OSError(errno.ENOMEM, "Cannot allocate memory"),
    "chained": caused(ValueError("the step failed"), MemoryError()),
    "chained twice": caused(KeyError("a"), in_the_handling_of(TypeError("b"), torch.OutOfMemoryError("c"))),
    "while it was handled": in_the_handling_of(KeyError("loss"), RuntimeError("CUDA error: out of memory")),
}

NOT_OUT_OF_MEMORY = {
    "a value that speaks of memory": ValueError("rm_num_slots: out of memory slots, can't allocate memory"),
    "a key that is called so": KeyError("out of memory"),
    "shapes": RuntimeError("mat1 and mat2 shapes cannot be multiplied (4x8 and 16x2)"),
    "a worker that left": RuntimeError("DataLoader worker (pid(s) 1) exited unexpectedly"),
    "a worker that crashed": RuntimeError(
        "DataLoader worker (pid 7) is killed by signal: Segmentation fault. "
    ),
    "an assertion on the GPU": RuntimeError("CUDA error: device-side assert triggered"),
    "a GPU fault": RuntimeError("CUDA error: an illegal memory access was encountered"),
    "a file that is not there": FileNotFoundError(
        errno.ENOENT, "Cannot allocate memory", "Cannot allocate memory"
    ),
    "a full disk, in C++": RuntimeError(
        "[enforce fail at inline_container.cc:603] . PytorchStreamWriter failed"
    ),
    "no thread": RuntimeError("can't start new thread"),
    "no process": BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
    "an exit": SystemExit(1),
    "Ctrl-C": KeyboardInterrupt(),
    "causes in a circle": in_a_circle(),
}


@pytest.mark.parametrize("error", OUT_OF_MEMORY.values(), ids=OUT_OF_MEMORY)
def test_every_form_of_out_of_memory_is_recognised(error: BaseException) -> None:
    outcome = failures.from_exception(error)
    assert (outcome.status, outcome.failure) == (Status.FAILED, Failure.OOM)
    assert outcome.reason.startswith(type(error).__name__)


def test_a_full_disk_is_no_fault_of_the_trials() -> None:
    try:
        with open("/dev/full", "w") as file:  # noqa: PTH123 - the device that is always full
            file.write("x")
    except OSError as error:
        outcome = failures.from_exception(error)
    assert outcome.status is Status.INTERRUPTED
    assert outcome.reason == "cannot be written: No space left on device"


def printed(error):
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("name", ["torch's own", "CUDA driver", "torch on the CPU, here and now", "NumPy"])
def test_an_out_of_memory_is_recognised_as_printed_also_as_a_cause(name):
    error = OUT_OF_MEMORY[name]
    for text in (printed(error), printed(caused(ValueError("the training has failed"), error))):
        assert failures.from_traceback(text).failure is Failure.OOM


@pytest.mark.parametrize("error", NOT_OUT_OF_MEMORY.values(), ids=NOT_OUT_OF_MEMORY)
def test_other_errors_are_no_out_of_memory_as_printed(error):
    assert failures.from_traceback(printed(error)).failure is not Failure.OOM


@pytest.mark.parametrize("error", NOT_OUT_OF_MEMORY.values(), ids=NOT_OUT_OF_MEMORY)
def test_similar_messages_are_ordinary_errors(error: BaseException) -> None:
    assert failures.from_exception(error).failure is Failure.ERROR


PASSING = [
    RuntimeError("NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error"),
    RuntimeError("ncclRemoteError: A call failed possibly due to a network error"),
    RuntimeError("CUDA error: unspecified launch failure"),
    RuntimeError("DataLoader worker (pid 4711) exited unexpectedly with exit code 1"),
    RuntimeError("DataLoader worker (pid(s) 12, 13) exited unexpectedly"),
    RuntimeError("DataLoader timed out after 600 seconds"),
    OSError(errno.EIO, "Input/output error", "/data/7.png"),
    OSError(errno.ESTALE, "Stale file handle"),
    ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    caused(ValueError("no batch"), TimeoutError("Read timed out")),
]


@pytest.mark.parametrize("error", PASSING, ids=str)
def test_transient_faults_are_recognised(error: BaseException) -> None:
    outcome = failures.from_exception(error)
    assert (outcome.failure, outcome.is_passing) == (Failure.ERROR, True)
    assert TypeAdapter(Outcome).validate_python(asdict(outcome)) == outcome


class Unreadable(torch.utils.data.Dataset[int]):
    """A data set whose storage does not respond."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO), f"/data/{index}.png")


def test_a_loader_workers_error_is_read_from_the_end_of_its_text() -> None:
    """torch re-raises it with the worker's whole traceback, of which a reason has only the beginning."""
    with pytest.raises(OSError, match="Caught OSError in DataLoader worker") as raised:
        next(iter(torch.utils.data.DataLoader(Unreadable(), num_workers=1)))
    outcome = failures.from_exception(raised.value)
    assert "Input/output error" not in outcome.reason
    assert outcome.is_passing


@pytest.mark.parametrize("error", [ValueError("image 7 has no caption"), KeyError("nccl")], ids=str)
def test_an_error_that_another_attempt_would_meet_again_is_not_transient(error: BaseException) -> None:
    assert not failures.from_exception(error).is_passing


def test_divergence_is_recognised_by_type() -> None:
    assert failures.from_exception(FloatingPointError("loss is nan")).failure is Failure.DIVERGED
    assert failures.from_exception(caused(ValueError(), FloatingPointError())).failure is Failure.DIVERGED


def test_a_reason_is_one_short_printable_line() -> None:
    reason = failures.from_exception(ValueError("a\n\tb\x1b[31m\0 c" + "x" * 1000)).reason
    assert reason.startswith("ValueError: a b [31m cx")
    assert len(reason) == 300
    assert failures.from_exception(MemoryError()).reason == "MemoryError"


BAD_ALLOC = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
WATCHDOG = (
    "[rank1]:[E918] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17)\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
)
RESET = "warning: Connection reset by peer, downloading again\n"
LIBGOMP = "libgomp: Thread creation failed: Resource temporarily unavailable\n"
OPENBLAS = (
    "OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 4: Resource temporarily unavailable\n"
)
NO_THREAD = (
    "terminate called after throwing an instance of 'std::system_error'\n"
    "  what():  Resource temporarily unavailable"
)
TOO_MANY = "probably too many processes or threads for this user or container (see `ulimit -u`)"
EXITS = [
    (-signal.SIGKILL, "", True, Failure.OOM, "killed by the kernel, which was out of memory"),
    (-signal.SIGKILL, "", False, Failure.LOST, "killed by SIGKILL"),
    (-signal.SIGSEGV, "", True, Failure.ERROR, "killed by SIGSEGV"),
    (-signal.SIGSEGV, BAD_ALLOC, False, Failure.ERROR, "killed by SIGSEGV"),
    (-signal.SIGABRT, BAD_ALLOC, False, Failure.OOM, "killed by SIGABRT: std::bad_alloc"),
    (-signal.SIGSEGV, WATCHDOG, False, Failure.ERROR, "killed by SIGSEGV"),
    (-signal.SIGABRT, RESET, False, Failure.ERROR, "killed by SIGABRT"),
    (-signal.SIGABRT, "malloc(): corrupted top size", False, Failure.ERROR, "killed by SIGABRT"),
    (-(signal.SIGRTMIN + 1), "", False, Failure.ERROR, f"killed by signal {signal.SIGRTMIN + 1}"),
    (1, LIBGOMP, False, Failure.ERROR, f"{TOO_MANY}: exited with 1 without a verdict: {LIBGOMP[9:]}"),
    (-signal.SIGINT, OPENBLAS, False, Failure.ERROR, f"{TOO_MANY}: killed by SIGINT: {OPENBLAS[27:]}"),
    (
        -signal.SIGABRT,
        NO_THREAD,
        False,
        Failure.ERROR,
        f"{TOO_MANY}: killed by SIGABRT: what(): {NO_THREAD[-32:]}",
    ),
    (1, "Traceback ...", False, Failure.ERROR, "exited with 1 without a verdict"),
    (3, BAD_ALLOC, False, Failure.ERROR, "exited with 3 without a verdict"),
    (0, "", False, Failure.ERROR, "exited with 0 without a verdict"),
]


@pytest.mark.parametrize(("code", "last_words", "kernel_killed", "kind", "reason"), EXITS)
def test_an_exit_without_a_verdict_is_explained(
    code: int, last_words: str, kernel_killed: bool, kind: Failure, reason: str
) -> None:
    outcome = failures.from_exit(code, last_words, kernel_killed=kernel_killed)
    assert (outcome.failure, outcome.reason, outcome.is_passing) == (kind, reason.strip(), False)


def test_the_reason_of_a_watchdogs_abort_is_read_from_the_log() -> None:
    outcome = failures.from_exit(-signal.SIGABRT, WATCHDOG, kernel_killed=False)
    assert (outcome.failure, outcome.is_passing) == (Failure.ERROR, True)
    assert outcome.reason == "killed by SIGABRT: collective operation timeout"
