"""Faults of the machine are one line, and errors that nobody expected keep their traceback."""

import errno
import os
import subprocess
import sys

import pytest

from autotune.core.errors import InputError
from autotune.sessions import faults

REFUSED = """
import os, resource, subprocess, sys, threading
from autotune.sessions import faults
os.setgroups([])
os.setgid(65534)
os.setuid(65534)  # root has no limit
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
for begin in (threading.Thread(target=print).start, lambda: subprocess.Popen(["true"]), os.fork):
    try:
        begin()
    except Exception as error:
        print(faults.deliberate(error))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_a_process_or_thread_that_the_kernel_refuses_is_one_line():
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, check=False)
    said = done.stdout.splitlines()
    assert len(said) == 3, (said, done.stderr)
    assert all(line.startswith("probably too many processes or threads for this user") for line in said)


def test_without_a_temporary_directory_tmpdir_is_named():
    found = faults.deliberate(
        FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/x']")
    )
    assert isinstance(found, InputError)
    assert str(found).startswith("TMPDIR: must be a directory that can be written: No usable temporary ")


@pytest.mark.parametrize("error", [FileNotFoundError(errno.ENOENT, "No such file", "/x"), ValueError("x")])
def test_other_errors_keep_their_traceback(error):
    assert faults.deliberate(error) is None
