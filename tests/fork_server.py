"""Imports the tuner once and forks what runs it. `forked` asks for that, in lines of JSON."""

import atexit
import gc
import importlib
import json
import os
import sys
import tempfile
from typing import Any

# What a search imports, some of it late.
LATE = ("autotune.cli.cli", "autotune.cli.cli_run", "ray.air.integrations.wandb", "alembic.command")


def next_one() -> dict[str, Any] | None:
    """What a process is to be that was forked for it; None in the server, where nobody asks any more."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "ended" in asked:
            print(os.waitstatus_to_exitcode(os.waitpid(asked["ended"], 0)[1]), flush=True)
        elif pid := os.fork():
            print(pid, flush=True)
        else:
            return dict(asked)
    return None


def run(asked: dict[str, Any]) -> None:
    """Goes on as Python would that was started with this script."""
    if asked["leads"]:
        os.setpgid(0, 0)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["directory"])
    for number, place in enumerate([os.devnull, *asked["said"]]):
        opened = os.open(place, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    tempfile.tempdir = None  # which remembers TMPDIR
    path = asked["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [asked["directory"], *filter(None, path)]
    sys.argv[:] = ["-c", *asked["arguments"]]
    exec(asked["script"], {"__name__": "__main__"})


for module in LATE:
    importlib.import_module(module)
media = importlib.import_module("wandb.sdk.data_types._private").MEDIA_TMP
media._finalizer.detach()  # a directory for all: the first of them to end would remove it
atexit.unregister(media.cleanup)
gc.freeze()  # what is collected at the end of every process would be much
if (one := next_one()) is not None:
    run(one)
else:
    media.cleanup()
