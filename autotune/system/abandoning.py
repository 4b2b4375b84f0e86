"""Runs processes that a faulty driver may keep from ever ending."""

import subprocess
from collections.abc import Mapping, Sequence

_abandoned: list[subprocess.Popen[str]] = []  # kept, because collecting one that still runs is a warning


def run(
    arguments: Sequence[str], timeout_s: float, text: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Runs a process with `text` as its input; returns None if it takes longer than `timeout_s`.

    It is then killed, but not waited for as by `subprocess.run`: one that waits for a driver may never end.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(  # noqa: S603 - this Python, or the user's own
        arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment
    )
    try:
        output, errors = process.communicate(text, timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        _abandoned.append(process)
        return None
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)
