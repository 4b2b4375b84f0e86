import subprocess
import sys

import pytest

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
