import os
import signal
import subprocess
import sys

import pytest

from r2gen.host import uninterrupted

# Takes and frees tensors of all sizes as training steps do; prints how many pages the kernel gave at last.
PROGRAM = """
import resource, sys, torch
from r2gen.host import keep_freed_memory
torch.set_num_threads(1)
if sys.argv[1] == "kept":
    keep_freed_memory()

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


def page_faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other C libraries are left alone")
def test_the_kernel_gives_pages_once():
    assert page_faults("kept") < page_faults("default") / 10


def test_the_death_of_a_worker_is_told_after_what_must_not_be_interrupted() -> None:
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
