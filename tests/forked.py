"""The command line, or a script, in its own process, forked from one that has imported what it needs.

To import Ray, Optuna and W&B takes longer than all else that a search of a toy workload does, and to import
torch longer than a tiny training. The rest is the same: an environment, a working directory and children of
its own, to be killed like any process. Where the start of Python is the point, tests use `subprocess`.

All workers of a test run share one such process of each kind. The first to need it starts it, and it ends
with the last one that has used it.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO

_ROOT = Path(__file__).parents[1]
_ATTEMPTS = 3
_ENVIRONMENT = dict(os.environ)  # before any test has changed it: the server is not the first client's alone
COMMAND = "import sys; from autotune.__main__ import main; sys.exit(main())"
TRAINER = "import sys; from r2gen.__main__ import main; sys.exit(main())"
WITHOUT_COMPILER = _ROOT / "tests" / "without_compiler"  # on the path of a process that starts Python


class Forked:
    """`python -c script` with `arguments` in `directory`, to be treated as a `subprocess.Popen`.

    Its output goes into the file `output`, or else to `communicate`. If it `leads`, it has a process group
    of its own, as a shell would give it one. `warm` says what is imported: the tuner, or less than that.
    """

    def __init__(
        self,
        arguments: tuple[object, ...],
        directory: Path,
        environment: Mapping[str, str],
        *,
        script: str = COMMAND,
        output: Path | None = None,
        leads: bool = False,
        warm: str = "tuner",
    ) -> None:
        self.args = list(map(str, arguments))
        self.returncode: int | None = None
        said = [os.memfd_create(name) for name in ("out", "err")]
        self._said = [Path(f"/proc/{os.getpid()}/fd/{file}") for file in said]
        self._warm = warm
        self.pid = _ask(
            warm,
            script=script,
            arguments=self.args,
            directory=str(directory),
            environment=dict(environment),
            said=[str(output)] * 2 if output else list(map(str, self._said)),
            leads=leads,
        )
        self._end = os.pidfd_open(self.pid)
        for file in (*said, self._end):
            weakref.finalize(self, os.close, file)

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = _ask(self._warm, ended=self.pid)
        return self.returncode

    def said(self) -> str:
        """Its output so far."""
        return self._said[0].read_text(encoding="utf-8")

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All of its output, errors apart, when it has ended."""
        self.wait(timeout)
        return self.said(), self._said[1].read_text(encoding="utf-8")

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    arguments: tuple[object, ...],
    directory: Path,
    environment: Mapping[str, str],
    *,
    script: str = COMMAND,
    timeout: float = 240,
    warm: str = "tuner",
) -> subprocess.CompletedProcess[str]:
    """Runs such a process to its end, as `subprocess.run` does."""
    process = Forked(arguments, directory, environment, script=script, warm=warm)
    out, err = process.communicate(timeout)
    return subprocess.CompletedProcess(process.args, process.wait(), out, err)


@cache
def _server(warm: str) -> TextIO:
    """The connection to the server that forks: it answers once it has imported its modules."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    address = f"\0tests-{run}-{warm}"
    for _ in range(_ATTEMPTS):
        stream = _connected(address, warm)
        with suppress(ConnectionResetError):
            if stream.readline():
                return stream  # else it was about to end, or cannot import it
    raise RuntimeError(f"what forks {warm} has ended")


def _connected(address: str, warm: str) -> TextIO:
    while True:
        end = socket.socket(socket.AF_UNIX)
        try:
            end.connect(address)
        except ConnectionRefusedError:
            end.close()
            _start(address, warm)
        else:
            with end:
                return end.makefile("rw")


def _start(address: str, warm: str) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        try:
            listening.bind(address)
        except OSError:  # another worker is just starting it
            time.sleep(0.01)
            return
        listening.listen()
        command = [sys.executable, "-m", "tests.fork_server", warm, str(listening.fileno())]
        nothing = subprocess.DEVNULL
        given: dict[str, Any] = {"pass_fds": [listening.fileno()], "stdin": nothing, "stdout": nothing}
        server = subprocess.Popen(command, cwd=_ROOT, env=_ENVIRONMENT, **given)
        server.returncode = 0  # it is not waited for: it ends by itself, maybe after this process


def _ask(warm: str, **what: Any) -> int:
    server = _server(warm)
    print(json.dumps(what), file=server, flush=True)
    return int(server.readline())
