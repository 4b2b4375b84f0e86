import os
import signal
import subprocess
import sys

import pytest

from r2gen.host import uninterrupted

# Allocates and frees tensors of all sizes as training steps do; prints the page faults of the last steps.
PROGRAM = """
import resource, sys, torch
from r2gen.host import tune_allocator
torch.set_num_threads(1)
if sys.argv[1] == "kept":
    tune_allocator()

def steps(count):
    for _ in range(count):
        held = [torch.ones(2**20 * size) for size in range(1, 12)]
        while held:
            held.pop()

steps(6)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
steps(6)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


# Steps as above, under a limit that they do not reach; prints the growth of mapped memory.
LIMITED = """
import resource, sys, torch
from r2gen.host import tune_allocator
hard = 2**40 if sys.argv[1] == "for good" else resource.RLIM_INFINITY
resource.setrlimit(resource.RLIMIT_DATA, (2**40, hard))
torch.set_num_threads(1)
tune_allocator()

def data_bytes():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))

before, small = data_bytes(), []
for _ in range(3):
    held = [torch.ones(2**20) for _ in range(16)]
    small.append(torch.ones(2**10))  # at the end of the heap, were all of them there
    held.clear()
print(data_bytes() - before)
"""


def page_faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other C libraries are left alone")
def test_the_kernel_gives_pages_once():
    assert page_faults("kept") < page_faults("default") / 10


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other C libraries are left alone")
@pytest.mark.parametrize(("limit", "counts"), [("for good", False), ("as the tuner limits a trial", True)])
def test_under_a_limit_on_mapped_memory_freed_memory_does_not_count(limit: str, counts: bool) -> None:
    """A trial computes as fast as the training after it, which has no limit."""
    command = [sys.executable, "-c", LIMITED, limit]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (int(done.stdout) > 16 * 2**20) is counts, "of 64 MiB in each step"


def test_the_death_of_a_worker_is_reported_after_the_protected_block() -> None:
    def fail(number: int, frame: object) -> None:
        raise RuntimeError("a worker died")

    def work() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGCHLD)
            done.append("all of it")

    before = signal.signal(signal.SIGCHLD, fail)
    done: list[str] = []
    try:
        with pytest.raises(RuntimeError, match="a worker died"):
            work()
        assert signal.getsignal(signal.SIGCHLD) is fail
        with uninterrupted():
            done.append("and nothing died")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert done == ["all of it", "and nothing died"]
