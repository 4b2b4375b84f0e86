"""Classifies the failure of a trial by its exception or exit status. Pure: no process, no file."""

import builtins
import errno
import re
import signal
import sqlite3
from collections.abc import Iterator, Set
from dataclasses import replace

from autotune.core import units
from autotune.core.errors import InputError, printable
from autotune.core.trial import Failure, Outcome, Shortage, Status
from autotune.inside.messages import GpuLostError
from autotune.trials.gpu_memory import GpuMemory
from autotune.workloads.command.ending import CommandError, signal_name

# The disk cannot be written by any trial: full, over a quota or limit, read-only.
DISK_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})
# For our own files: syncing to a disk that has just turned read-only fails with EIO.
OUR_DISK_ERRNOS = DISK_ERRNOS | {errno.EIO}
_SQLITE_FAULTS = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,  # over a quota, among others
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_BUSY,
}
SQLITE_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_LAST_LINE = re.compile(
    r"^(?:\w+\.)*(?P<name>_?[A-Z]\w*(?:Error|Exception))(?:: (?P<text>.*))?$", re.MULTILINE
)
_TYPES_TOLD_BY_TEXT = (RuntimeError, SystemError, ImportError, OSError)
TOO_MANY = "probably too many processes or threads for this user or container (see `ulimit -u`)"
_MEMORY_GONE_SHARE = 0.95
_CAP_GONE_SHARE = 0.85
_SERVER_DIED = 255  # multiprocessing's exit code for a process whose fork server has died

# Out-of-memory messages: of CUDA and what builds on it (NCCL, JAX, TensorFlow), the CPU allocator, the C
# library, C++, a compiler, a loader's worker that ran out of memory or was killed for it, a command that was
# killed, and /dev/shm.
_OOM = re.compile(
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
_CAPPED = re.compile(
    r"could not (create|execute) a primitive"
    r"|(failed to map segment from shared object|cannot map zero-fill pages)(?!:)"
    r"|Unable to (create type object|instantiate PyTypeObject)"
)
# The kernel refuses a thread or a process: too many of them, unless a cap leaves no memory for its stack.
_THREADS = re.compile(
    r"can't start new thread|pthread_create\b[^\n]*(failed|Resource temporarily unavailable)"
    r"|[Tt]hread creation failed: Resource temporarily unavailable|code: 11, kind: WouldBlock"
    r"|[Ff]ork: (retry: )?Resource temporarily unavailable|[Cc](annot|an't) fork\b"
    r"|(what\(\): +|\A)Resource temporarily unavailable\b"
)
# A GPU library that cannot be initialized: for lack of memory, unless there was enough.
_HANDLE = re.compile(r"CUBLAS_STATUS_NOT_INITIALIZED when calling `cublas(Lt)?Create")
# Errors of GPU libraries for lack of memory, among many other causes.
_ENGINE = re.compile(
    r"unable to find an engine to execute this computation|No valid engine configs"
    r"|CUDNN_STATUS_NOT_INITIALIZED|CU(BLAS|DNN|SOLVER)_STATUS_(INTERNAL_ERROR|EXECUTION_FAILED)"
)
_OF_GPU = re.compile(r"\b(CUDA|Cuda|Triton)|CU(BLAS|DNN|SPARSE|SOLVER|FFT)_|NVML_")
_ASKED = re.compile(r"Tried to allocate (\d+(?:\.\d+)? [KMGT]iB)")
# The memory that ran out is the host's, shared with the loader's workers, not the training process's own. A
# loader pins the host's memory by CUDA, whose error is that of a full GPU.
_SHARED = re.compile(r"DataLoader worker|shared memory|/torch_|killed by |pin memory thread")
_KILLED_WORKER = re.compile(r"(DataLoader worker|command) \(pid[^)]*\) is killed by signal: Killed")
# Errors of the links between GPUs.
_NCCL = re.compile(
    r"\bNCCL\b[^\n]*\b([Ee]rror|timed? ?out)|nccl(System|Remote|Internal|UnhandledCuda)Error"
    r"|collective operation timeout"
)
# Transient faults, which another attempt may not meet: of these links, a kernel launch, a disk or network
# behind the data, or one of the loader's workers.
_PASSING = re.compile(
    rf"{_NCCL.pattern}"
    r"|CUDA error: (unspecified launch failure|the launch timed out|unknown error|uncorrectable ECC error)"
    r"|CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_EXECUTION_FAILED"
    r"|DataLoader worker \(pid(\(s\))?[^)]*\) (exited unexpectedly|is killed by signal)"
    r"|DataLoader timed out"
    r"|Input/output error|Stale file handle|Transport endpoint is not connected|Remote I/O error"
    r"|Connection (reset|refused|aborted|timed out)|Connection broken|Remote end closed connection"
    r"|Temporary failure in name resolution|Read timed out|Network is unreachable"
)


def failure(kind: Failure, reason: str, shortage: Shortage | None = None) -> Outcome:
    """Returns the outcome of a failed trial; its reason is one printable line of at most 300 characters."""
    return Outcome(Status.FAILED, kind, _one_line(reason), shortage)


def lost_attempt(reason: str) -> Outcome:
    """Returns the outcome of an attempt killed from outside: the trial is resumed, a few times at most."""
    return Outcome(Status.INTERRUPTED, Failure.LOST, _one_line(reason))


def killed_process(what: str) -> Outcome:
    """Returns the outcome if the kernel killed one of the trial's processes; `what` is the consequence."""
    return failure(
        Failure.OOM, f"the kernel has killed one of its processes for memory: {what}", Shortage.MACHINE
    )


def _one_line(text: str) -> str:
    return " ".join(printable(text).split())[:300]


def from_exception(
    error: BaseException, *, capped: bool = True, cap_share: float = 0.0, gpu: GpuMemory | None = None
) -> Outcome:
    """Returns the outcome of a workload that raised `error`, judged by the whole chain of causes.

    `capped`: host memory was capped, so errors that a cap provokes count as out of memory. `cap_share`: the
    share of the cap in use. `gpu`: the state of the GPU memory, if known, which decides ambiguous errors.
    """
    leaves_no_stack = capped and cap_share >= _CAP_GONE_SHARE
    kinds = [(cause, _kind(cause, capped, leaves_no_stack, gpu)) for cause in chain(error)]
    causes = {kind: cause for cause, kind in reversed(kinds)}
    if isinstance(error, GpuLostError):  # before the trial allocates: an OOM is due to others
        text = _text(error)
        is_full = Failure.OOM in causes
        return lost_attempt(text) if is_full else Outcome(Status.INTERRUPTED, reason=_one_line(text))
    if Failure.OOM in causes and _is_caused_by_others(_text(causes[Failure.OOM]), gpu):
        return lost_attempt(f"others have taken the GPU's memory: {_line(error)}")
    for kind in (Failure.OOM, Failure.DIVERGED):
        if (cause := causes.get(kind)) is not None:
            reason = _line(error) if cause is error else f"{_line(error)}; because of {_line(cause)}"
            return failure(kind, reason, _shortage(_one_line(reason)) if kind is Failure.OOM else None)
    if fault := disk_fault(error, DISK_ERRNOS):
        # A failed write names no file; code that caught the error and raised another has named it.
        return Outcome(
            Status.INTERRUPTED, reason=_one_line(fault if isinstance(error, OSError) else _text(error))
        )
    if any(is_refused_a_process(cause) for cause in chain(error)):
        return failure(Failure.ERROR, f"{TOO_MANY}: {_line(error)}")
    is_passing = any(_PASSING.search(_line(cause)) for cause in chain(error))
    return replace(failure(Failure.ERROR, _line(error)), is_passing=is_passing)


def from_traceback(text: str) -> Outcome:
    """Returns the outcome of a printed error, which is out of memory if the error or a cause says so."""
    outcome = failure(Failure.ERROR, text)
    for line in _LAST_LINE.finditer(text):  # causes first; an unknown type may be from PyTorch
        is_memory_error = line["name"].endswith("MemoryError")  # NumPy's is _ArrayMemoryError
        known = MemoryError if is_memory_error else getattr(builtins, line["name"], RuntimeError)
        base = known if known in {*_TYPES_TOLD_BY_TEXT, MemoryError} else Exception
        outcome = from_exception(type(line["name"], (base,), {})(line["text"] or ""), capped=False)
        if outcome.failure is Failure.OOM:
            break
    return outcome


def disk_fault(error: BaseException, errnos: Set[int]) -> str | None:
    """Returns which file cannot be written and why, if an OSError with one of `errnos` is in the chain."""
    for cause in chain(error):
        if isinstance(cause, OSError) and cause.errno in errnos:
            where = f"{cause.filename}: " if cause.filename else ""
            return f"{where}cannot be written: {cause.strerror}"
    return None


def study_fault(error: BaseException, codes: Set[int] = _SQLITE_FAULTS) -> str | None:
    """Returns SQLite's message if its code is in `codes`; by default, those of a file that it cannot use."""
    for cause in chain(error):
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF  # the upper bits are the extended code
        if isinstance(cause, sqlite3.Error) and code in codes:
            return f"the session's study: {cause}"
    return None


def _is_caused_by_others(text: str, gpu: GpuMemory | None) -> bool:
    """Returns True if the text says that a GPU lacks memory that other processes took from the trial."""
    if gpu is None or not _OF_GPU.search(text) or _SHARED.search(text):
        return False
    asked = _ASKED.search(text)
    try:
        return gpu.is_taken_by_others(units.size_bytes(asked[1]) if asked else 0)
    except InputError:  # not a size, or one out of range
        return False


def is_refused_a_process(error: BaseException) -> bool:
    """Returns True if the kernel has refused a thread or a process; a fork's error names no file."""
    if isinstance(error, OSError) and error.errno is not None:
        is_of_a_write = hasattr(error, "characters_written")  # to a pipe that is full
        return error.errno == errno.EAGAIN and error.filename is None and not is_of_a_write
    # PanicException is raised by libraries in Rust.
    is_told_by_text = isinstance(error, _TYPES_TOLD_BY_TEXT) or "PanicException" in _class_names(error)
    return is_told_by_text and _THREADS.search(_text(error)) is not None


def _kind(error: BaseException, capped: bool, leaves_no_stack: bool, gpu: GpuMemory | None) -> Failure:
    """Classifies the error by itself, without its causes."""
    if leaves_no_stack and is_refused_a_process(error):
        return Failure.OOM
    text = _text(error)
    if _is_out_of_memory(error, text, capped) or (isinstance(error, RuntimeError) and _is_short(text, gpu)):
        return Failure.OOM
    has_diverged = _class_names(error) & {"DivergedError", "FloatingPointError"}
    return Failure.DIVERGED if has_diverged else Failure.ERROR


def _is_short(text: str, gpu: GpuMemory | None) -> bool:
    """Returns True if an ambiguous error is about memory, judged by that of the GPU."""
    if _HANDLE.search(text):
        return gpu is None or gpu.is_short
    return gpu is not None and gpu.is_short and _ENGINE.search(text) is not None


def _line(error: BaseException) -> str:
    if isinstance(error, CommandError):  # its text is complete
        return _text(error)
    return ": ".join(filter(None, (type(error).__name__, _text(error))))


def _is_out_of_memory(error: BaseException, text: str, capped: bool) -> bool:
    """Judges an error by its type if that is specific, else (C++ code, the loader) by its text."""
    names = _class_names(error)
    if names & {"OutOfMemoryError", "MemoryError"}:
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno == errno.ENOMEM
    # TensorFlow's ResourceExhaustedError is about memory or something else.
    # The text of other types is no evidence: a ValueError may well mention memory.
    is_told_by_text = isinstance(error, _TYPES_TOLD_BY_TEXT) or "ResourceExhaustedError" in names
    return is_told_by_text and _out_of_memory_text(text, capped) is not None


def _out_of_memory_text(text: str, capped: bool) -> str | None:
    match = _OOM.search(text) or (_CAPPED.search(text) if capped else None)
    return match and match[0]


def _shortage(text: str) -> Shortage | None:
    """Returns whose memory ran out, judged by torch's message."""
    if _KILLED_WORKER.search(text):
        return Shortage.KILLED_WORKER
    return Shortage.MACHINE if _SHARED.search(text) else None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a workload's own exception class can do anything
        return "(its text cannot be read)"


def _class_names(error: BaseException) -> set[str]:
    """Returns the names of the error's classes, to recognize torch's own without importing torch."""
    return {kind.__name__ for kind in type(error).__mro__}


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yields the error and its causes and contexts, each once, since a chain made by hand may be a ring."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def correct_verdict(
    outcome: Outcome,
    *,
    asked_to_stop: bool,
    kernel_killed: bool,
    memory_share: float,
    counted_alone: bool = False,
) -> Outcome:
    """Corrects the outcome that a workload reports if something outside ended it without its knowledge."""
    if outcome.status is Status.STOPPED and not asked_to_stop:
        return lost_attempt("it received a SIGTERM")
    if outcome.shortage is Shortage.KILLED_WORKER:
        is_oom = kernel_killed or memory_share >= _MEMORY_GONE_SHARE
        return outcome if is_oom else lost_attempt(outcome.reason)
    if outcome.failure is Failure.ERROR and kernel_killed and counted_alone:
        return killed_process(outcome.reason)
    return outcome


def from_exit(
    code: int,
    last_words: str,
    *,
    kernel_killed: bool,
    counted_alone: bool = False,
    memory_share: float = 0.0,
    cap_share: float = 0.0,
    capped: bool = True,
) -> Outcome:
    """Returns the outcome of a process that ended without a verdict; a negative `code` is a signal.

    `last_words`: end of its log. C++ code that cannot allocate in a thread aborts, as NCCL's watchdog does.
    `kernel_killed`: the kernel made an OOM kill meanwhile, in the trial if `counted_alone`, else nearby.
    `memory_share`: share of the machine's memory in use shortly before.
    `capped`: the process's memory was capped. `cap_share`: the share of the cap in use; code that does not
    check its allocations crashes then.

    A SIGKILL without any sign of a lack of memory came from outside and is not the trial's fault.
    """
    if kernel_killed and code in {-signal.SIGKILL, _SERVER_DIED}:
        return failure(Failure.OOM, "killed by the kernel, which was out of memory", Shortage.MACHINE)
    if code == _SERVER_DIED:
        what = "exited with 255 without a verdict, or its fork server was killed"
    else:
        what = f"killed by {signal_name(-code)}" if code < 0 else f"exited with {code} without a verdict"
    if code == -signal.SIGKILL and memory_share >= _MEMORY_GONE_SHARE:
        reason = f"{what} while {memory_share:.0%} of the machine's memory was in use"
        return failure(Failure.OOM, reason, Shortage.MACHINE)
    if code == -signal.SIGSEGV and cap_share >= _CAP_GONE_SHARE:
        reason = f"{what} with {cap_share:.0%} of its memory limit in use"
        return failure(Failure.OOM, reason, Shortage.MACHINE)
    if kernel_killed and counted_alone:
        return killed_process(what)
    if code in {-signal.SIGKILL, _SERVER_DIED}:
        return lost_attempt(what)
    oom = _out_of_memory_text(last_words, capped)
    if oom and code in {-signal.SIGABRT, -signal.SIGBUS, 1, 127}:  # 127: the dynamic loader gave up
        is_hosts = code < 0 and not _OF_GPU.search(oom)
        return failure(Failure.OOM, f"{what}: {oom}", Shortage.MACHINE if is_hosts else _shortage(oom))
    if code in {-signal.SIGABRT, -signal.SIGINT, 1} and (refused := _THREADS.search(last_words)):
        if capped and cap_share >= _CAP_GONE_SHARE:
            return failure(Failure.OOM, f"{what}: {refused[0]}")
        return failure(Failure.ERROR, f"{TOO_MANY}: {what}: {refused[0]}")
    if code == -signal.SIGABRT and (nccl_error := _NCCL.search(last_words)):
        return replace(failure(Failure.ERROR, f"{what}: {nccl_error[0]}"), is_passing=True)
    return failure(Failure.ERROR, what)
