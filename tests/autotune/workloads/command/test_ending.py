"""The meaning of a command's end, as the exception that is raised for it."""

import pytest

from autotune.core.errors import has_trace
from autotune.core.trial import Failure, Shortage
from autotune.inside.messages import ScriptError
from autotune.trials import failures
from autotune.workloads.command import ending

TRACEBACK = ["Traceback (most recent call last):", '  File "a.py", line 3, in <module>', "    x = 1 / 0"]


def kind(error):
    return failures.from_exception(error).failure


@pytest.mark.parametrize(
    ("code", "told", "tail", "failure", "said"),
    [
        (
            1,
            ScriptError("torch.OutOfMemoryError", "CUDA out of memory."),
            [],
            "oom",
            "OutOfMemoryError: CUDA out",
        ),
        (
            1,
            ScriptError("torch.AcceleratorError", "CUDA error: out of memory"),
            [],
            "oom",
            "AcceleratorError: CUDA",
        ),
        (1, ScriptError("RuntimeError", "CUDA error: out of memory"), [], "oom", "RuntimeError: CUDA error"),
        (1, ScriptError("MemoryError", ""), [], "oom", "MemoryError"),
        (
            1,
            ScriptError(
                "jaxlib.xla_extension.XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory allocating"
            ),
            [],
            "oom",
            "XlaRuntimeError: RES",
        ),
        (
            1,
            ScriptError("ValueError", "out of memory, error"),
            [],
            "error",
            "ValueError: out of memory, error",
        ),
        (1, ScriptError("lib.DivergedError", "loss is nan"), [], "diverged", "DivergedError: loss is nan"),
        (1, None, [*TRACEBACK, "ZeroDivisionError: division by zero"], "error", "ZeroDivisionError: div"),
        (1, None, [*TRACEBACK, "torch.OutOfMemoryError: CUDA out of memory."], "oom", "OutOfMemoryError"),
        (1, None, ["CUDA out of memory", *TRACEBACK, "KeyError: 'a'"], "error", "KeyError: 'a'"),
        (2, None, ["usage: a.py", "a.py: error: no --lr"], "error", "exited with 2: a.py: error: no --lr"),
        (-6, None, ["what():  std::bad_alloc", ""], "oom", "killed by SIGABRT: what(): std::bad_alloc"),
        (-11, None, [], "error", "killed by SIGSEGV"),
        (143, None, [], "error", "exited with 143 (SIGTERM)"),
        (1, None, ["error: 12 error error"], "error", "exited with 1: error: 12 error error"),
    ],
)
def test_an_exit_is_judged_as_the_exception_that_it_was(code, told, tail, failure, said):
    outcome = failures.from_exception(ending.exit_error(code, 7, told, tail))
    assert (outcome.failure, said in outcome.reason) == (Failure(failure), True), outcome.reason


@pytest.mark.parametrize("code", [-9, 137])
def test_a_kill_counts_as_out_of_memory_if_there_is_evidence(code):
    outcome = failures.from_exception(ending.exit_error(code, 7, None, []))
    assert outcome.shortage is Shortage.KILLED_WORKER
    judged = [
        failures.correct_verdict(outcome, asked_to_stop=False, kernel_killed=killed, memory_share=0.1)
        for killed in (True, False)
    ]
    assert [one.failure for one in judged] == [Failure.OOM, Failure.LOST]


def test_a_full_disk_is_not_the_scripts_fault():
    error = ending.exit_error(1, 7, ScriptError("OSError", "[Errno 28] No space left on device: 'a.pt'"), [])
    assert failures.from_exception(error).failure is None


def test_missing_metrics_are_reported_with_the_last_lines():
    error = ending.missing_output_error(
        ["quality.acc: matched no line"], ["a", "", "\x1b[1mb", "c", "d" * 99]
    )
    assert str(error) == (
        f"quality.acc: matched no line; the last lines of its output: [1mb | c | {'d' * 50}..."
    )
    assert str(ending.missing_output_error(["no step"], [])) == "no step; it printed nothing"


@pytest.mark.parametrize("tail", [["Traceback (most recent call last):", "ValueError: bad"], ["bad"], []])
def test_the_log_has_the_scripts_own_trace_and_none_of_ours(tail):
    assert not has_trace(ending.exit_error(1, 1, None, tail))
    assert has_trace(ValueError("one of a function's"))
