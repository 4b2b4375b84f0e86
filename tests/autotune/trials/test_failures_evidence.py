"""The evidence that decides if an exception's type or an exit status alone does not."""

import errno
import signal

import pytest

from autotune.core.trial import Failure, Shortage
from autotune.trials import failures
from autotune.workloads.command.ending import CommandError

CAPPED_ONLY = [
    RuntimeError("could not create a primitive"),
    RuntimeError("could not execute a primitive"),
    ImportError("torch/_C.so: failed to map segment from shared object"),
    OSError("libc10.so: cannot map zero-fill pages"),
]
OUT_OF_MEMORY = [
    RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if out of memory"),
    RuntimeError("CUDA error: CUSOLVER_STATUS_ALLOC_FAILED"),
    RuntimeError("Triton Error [CUDA]: out of memory"),
    RuntimeError("C++ compile error: cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes"),
    RuntimeError("Caught OutOfMemoryError in pin memory thread for device 0."),
    RuntimeError("Caught _ArrayMemoryError in DataLoader worker process 0."),
    ImportError("libx.so: cannot apply additional memory protection: Cannot allocate memory"),
    ImportError("libx.so: failed to map segment from shared object: Cannot allocate memory"),
]
OTHER = [
    RuntimeError(
        "out of resource: shared memory, Required: 131072, Hardware limit: 101376"
    ),  # Triton's kernels
    RuntimeError("memory format option is only supported by strided tensors"),
    RuntimeError("the argument memory is out of range"),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear with non-contiguous input"),
    ImportError("libx.so: failed to map segment from shared object: Operation not permitted"),
    ImportError("libgomp.so.1: cannot allocate memory in static TLS block"),
    LookupError("CUDA error: out of memory"),
]


@pytest.mark.parametrize("error", CAPPED_ONLY, ids=str)
def test_some_errors_mean_memory_only_if_it_is_capped(error: Exception) -> None:
    assert failures.from_exception(error, capped=True).failure is Failure.OOM
    assert failures.from_exception(error, capped=False).failure is Failure.ERROR


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=str)
def test_an_allocator_that_refuses_is_out_of_memory(error: Exception) -> None:
    assert failures.from_exception(error, capped=False).failure is Failure.OOM


@pytest.mark.parametrize("error", OTHER, ids=str)
def test_memory_that_is_only_mentioned_is_an_error(error: Exception) -> None:
    assert failures.from_exception(error, capped=True).failure is Failure.ERROR


def test_the_reason_names_the_cause_that_decided() -> None:
    error = RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly")
    error.__cause__ = RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")
    assert failures.from_exception(error).reason == (
        "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly; because of "
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed."
    )


@pytest.mark.parametrize(
    ("code", "words", "evidence", "kind"),
    [
        (-signal.SIGKILL, "", {"memory_share": 0.96}, Failure.OOM),
        (-signal.SIGKILL, "", {"memory_share": 0.5}, Failure.LOST),
        (-signal.SIGSEGV, "", {"memory_share": 0.99}, Failure.ERROR),
        (255, "", {"kernel_killed": True}, Failure.OOM),
        (255, "", {}, Failure.LOST),
        (-signal.SIGBUS, "ERROR: ... caused by insufficient shared memory (shm).", {}, Failure.OOM),
        (-signal.SIGBUS, "", {}, Failure.ERROR),
        (1, "OpenBLAS error: Memory allocation still failed after 10 retries, giving up.", {}, Failure.OOM),
        (127, "cannot allocate memory for thread-local data: ABORT", {}, Failure.OOM),
        (
            1,
            "libgomp: Thread creation failed: Resource temporarily unavailable",
            {"cap_share": 0.9},
            Failure.OOM,
        ),
    ],
)
def test_the_state_of_the_machine_is_evidence(
    code: int, words: str, evidence: dict[str, float], kind: Failure
) -> None:
    assert failures.from_exit(code, words, **({"kernel_killed": False} | evidence)).failure is kind


class PanicException(BaseException):
    pass


REFUSED = [
    RuntimeError("can't start new thread"),
    BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
    RuntimeError("Resource temporarily unavailable"),
    CommandError("exited with 2: /bin/sh: 1: Cannot fork"),
    PanicException(
        'ThreadPoolBuildError { kind: IOError(Os { code: 11, kind: WouldBlock, message: "..." }) }'
    ),
    RuntimeError("Caught RuntimeError in pin memory thread for device 0.\n...can't start new thread"),
]


@pytest.mark.parametrize("error", REFUSED, ids=repr)
def test_a_refused_thread_or_process_means_too_many_of_them_unless_the_cap_is_full(
    error: BaseException,
) -> None:
    outcome = failures.from_exception(error)
    assert outcome.failure is Failure.ERROR
    assert outcome.reason.startswith("probably too many processes or threads for this user or container (see")
    assert failures.from_exception(error, cap_share=0.9).failure is Failure.OOM
    assert failures.from_exception(error, capped=False, cap_share=0.9).failure is Failure.ERROR


def test_a_locked_file_is_no_refused_process() -> None:
    error = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable", "data.h5")
    assert failures.from_exception(error).reason.startswith("BlockingIOError")


KILLED = RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")


@pytest.mark.parametrize(
    ("error", "shortage"),
    [
        (KILLED, Shortage.KILLED_WORKER),
        (RuntimeError("Caught MemoryError in DataLoader worker process 0."), Shortage.MACHINE),
        (RuntimeError("unable to allocate shared memory(shm): No space left on device"), Shortage.MACHINE),
        (RuntimeError("unable to write to file </torch_1_2_0>: No space left on device"), Shortage.MACHINE),
        (MemoryError("no room"), None),
        (ValueError("DataLoader worker (pid 7) is killed by signal: Killed. "), None),
    ],
    ids=str,
)
def test_an_out_of_memory_names_the_memory_that_ran_out(error: Exception, shortage: Shortage | None) -> None:
    assert failures.from_exception(error).shortage is shortage


def test_what_a_killed_process_ran_out_of_is_the_machines() -> None:
    assert failures.from_exit(-signal.SIGKILL, "", kernel_killed=True).shortage is Shortage.MACHINE
    share = failures.from_exit(-signal.SIGKILL, "", kernel_killed=False, memory_share=0.96)
    assert share.shortage is Shortage.MACHINE
    words = failures.from_exit(1, "RuntimeError: CUDA out of memory", kernel_killed=False)
    assert (words.failure, words.shortage) == (Failure.OOM, None)


def test_a_loader_worker_killed_from_outside_is_lost() -> None:
    outcome = failures.from_exception(KILLED)
    by_whom = {"asked_to_stop": False, "kernel_killed": False, "memory_share": 0.5}
    assert failures.correct_verdict(outcome, **by_whom).failure is Failure.LOST
    assert failures.correct_verdict(outcome, **(by_whom | {"kernel_killed": True})) == outcome


def test_a_kill_among_its_own_processes_explains_any_error() -> None:
    error = failures.from_exception(ValueError("the program has failed"))
    seen = {"asked_to_stop": False, "kernel_killed": True, "memory_share": 0.5}
    assert failures.correct_verdict(error, **seen).failure is Failure.ERROR
    found = failures.correct_verdict(error, **seen, counted_alone=True)
    assert (found.failure, found.shortage) == (Failure.OOM, Shortage.MACHINE)
    assert found.reason.endswith("for memory: ValueError: the program has failed")
    assert failures.from_exit(1, "", kernel_killed=True).failure is Failure.ERROR
    assert failures.from_exit(1, "", kernel_killed=True, counted_alone=True).failure is Failure.OOM
