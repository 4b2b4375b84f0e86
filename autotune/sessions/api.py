"""The tuner from Python, in a notebook too: `search`, `resume` and `open_session`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, cast

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from autotune.core import errors
from autotune.core.errors import AutotuneError, InputError, SearchAborted
from autotune.sessions import start
from autotune.sessions.requests import CALL, SearchRequest
from autotune.sessions.session import Session
from autotune.storage.store import resume_command

OnEvent = Callable[[dict[str, Any]], object]
_OPTIONS = {field.name for field in fields(SearchRequest)} - {"as_json", "content"}


def search(
    space: str | Path | Mapping[str, Any] | None = None,
    *,
    time: str | None = None,
    trials: int | None = None,
    session: str | Path | None = None,
    on_event: OnEvent | None = None,
    **options: Any,
) -> Session:
    """Searches a space: a file, the name of a built-in space, or a dict with the content of a file.

    `options` are the command's options, with `_` for `-`. `on_event` gets what the command prints with
    `--json`. Ctrl-C, or an error of `on_event`, ends the search; `resume` continues it. Raises InputError if
    an option or the space is invalid, and SearchAborted if the search broke off.
    """
    for name in options.keys() - _OPTIONS:
        raise InputError(f"search: {name} is not an option{errors.did_you_mean(name, _OPTIONS)}")
    root = Path(session) if session is not None else start.default_session()
    if isinstance(space, Mapping):
        options["content"] = space
    else:
        options["space"] = str(space) if isinstance(space, Path) else space
    options |= {"session": root, "trials": trials, "time": time}
    return _run("search", options, root, on_event)


def resume(
    path: str | Path, *, trials: int = 0, time: str | None = None, on_event: OnEvent | None = None
) -> Session:
    """Continues a search, with `trials` more trials, and a new limit of `time` from now on."""
    options = {"session": Path(path), "trials": trials, "time": time}
    return _run("resume", options, Path(path), on_event)


def open_session(path: str | Path) -> Session:
    """Opens a session to read it, even while its search runs."""
    return Session(Path(path))


def _run(command: str, options: Mapping[str, Any], root: Path, on_event: OnEvent | None) -> Session:
    """Runs a command in a child process that ends with this one; returns the session."""
    try:
        values = {"parent": os.getpid(), command: {**options, "as_json": True}}
        call = CALL.dump_json(CALL.validate_python(values))
    except ValidationError as error:
        (first, *_) = error.errors()
        raise InputError(f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}") from None
    except PydanticSerializationError as error:  # of NumPy's numbers, say
        raise InputError(f"{command}: values must be plain numbers, texts and lists: {error}") from None
    event: dict[str, Any] = {}
    # In a process session of its own, so that an interrupt reaches it once, passed on by this process.
    with subprocess.Popen(
        [sys.executable, "-m", "autotune.sessions"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            with cast("IO[bytes]", process.stdin) as stdin:
                stdin.write(call + b"\n")
            for line in cast("IO[bytes]", process.stdout):
                event = json.loads(line)
                if on_event is not None:
                    on_event(event)
            process.wait()
        except BaseException:
            _interrupt(process)
            raise
    if event.get("event") == "error":
        if event["kind"] == KeyboardInterrupt.__name__:
            raise KeyboardInterrupt(event["text"])
        raise getattr(errors, event["kind"], AutotuneError)(event["text"])
    if event.get("event") != "result":
        code = process.returncode
        raise SearchAborted(f"the search ended with exit code {code}; continue with: {resume_command(root)}")
    return Session(root)


def _interrupt(process: "subprocess.Popen[bytes]") -> None:
    """Interrupts a search as Ctrl-C does, once more for every further interrupt of this process."""
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            cast("IO[bytes]", process.stdout).read()
            process.wait()
        except KeyboardInterrupt:
            continue
