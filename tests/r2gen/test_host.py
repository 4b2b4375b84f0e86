import subprocess
import sys

import pytest

# Allocates and frees the same large tensor again and again, and prints how often the kernel had to give pages.
PROGRAM = """
import resource, sys, torch
from r2gen.host import keep_freed_memory
torch.set_num_threads(1)
if sys.argv[1] == "kept":
    keep_freed_memory()
torch.ones(2**24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    torch.ones(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other C libraries are left alone")
def test_the_kernel_gives_pages_once():
    assert page_faults("kept") < page_faults("default") / 10
