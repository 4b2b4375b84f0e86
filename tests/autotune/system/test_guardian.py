"""A guardian removes the control groups of processes that have ended."""

import os
import subprocess
import sys

from autotune.system import guardian


def test_the_group_of_a_process_that_nobody_waits_for_is_removed(tmp_path):
    """The process that started Ray inherits orphans below it, and does not reap them."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        theirs, own = (tmp_path / f"{guardian.GROUP}{pid}-0" for pid in (ended.pid, os.getpid()))
        theirs.mkdir()
        own.mkdir()
        guardian.remove_groups(tmp_path)
        assert (theirs.exists(), own.exists()) == (False, True)
