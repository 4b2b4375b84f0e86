"""Imports the tuner, the trainer or Lightning once, and forks what runs it: `forked` asks, in JSON."""

import atexit
import gc
import importlib
import json
import os
import select
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

SPACE = "{workload: 'a:fit', baseline: {micro_batch_size: 4}, knobs: {micro_batch_size: {choice: [4, 8]}}}"

# What a search imports, some of it late.
LATE = (
    *("autotune.cli.app", "autotune.sessions.run", "autotune.sessions.start", "autotune.trackers.wandb"),
    *("alembic.command", "ray.train.trainer", "ray.train._internal.backend_executor"),
    *("ray.air.integrations.wandb", "ray.dag", "ray.experimental.gradio_utils", "ray.tune.logger.aim"),
    *("wandb.apis.public", "wandb.sdk.launch", "ray.air.integrations.mlflow", "ray.air.integrations.comet"),
    *("pydantic.v1", "plotly"),
)


def next_one(listening: socket.socket) -> dict[str, Any] | None:
    """The task of a process, in the one forked for it; None in the server, once it has no more clients."""
    clients: dict[socket.socket, TextIO] = {}
    while True:
        ready = select.select([listening, *clients], [], [])[0]
        for end in ready:
            if end is listening:
                client, _ = listening.accept()
                clients[client] = client.makefile()
                _say("imported", client)
            elif not (line := clients[end].readline()):
                clients.pop(end).close()
                end.close()
            elif (number := _done(json.loads(line))) is not None:
                _say(number, end)
            else:
                for each in (listening, *clients.values(), *clients):
                    each.close()
                return dict(json.loads(line))
        if not clients and not select.select([listening], [], [], 0)[0]:
            return None


def _say(what: object, client: socket.socket) -> None:
    with suppress(OSError):  # the client was killed; others keep asking
        client.sendall(f"{what}\n".encode())


def _done(asked: dict[str, Any]) -> int | None:
    """The exit code of a process that has ended, or the number of one that was forked; None in that one."""
    if "ended" in asked:
        return os.waitstatus_to_exitcode(os.waitpid(asked["ended"], 0)[1])
    return os.fork() or None


def run(asked: dict[str, Any]) -> None:
    """Continues as a Python process that was started with this script."""
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


def warm_tuner() -> Callable[[], object]:
    """Also does what takes longer the first time: makes a study, and reads the templates of a page.

    Yields what to clean up when the server ends.
    """
    for module in LATE:
        importlib.import_module(module)
    from wandb.sdk.data_types._private import MEDIA_TMP

    from autotune.reports import page
    from autotune.space import spaces
    from autotune.storage import studies

    space = spaces.complete(spaces.parse(SPACE, "warm"), "warm")
    with tempfile.TemporaryDirectory() as directory:
        studies.close(studies.open_study(Path(directory, "study.db"), space))
    environment = page.environment()
    for name in environment.list_templates(extensions=["j2"]):
        environment.get_template(name)
    MEDIA_TMP._finalizer.detach()  # a directory for all: the first of them to end would remove it
    atexit.unregister(MEDIA_TMP.cleanup)
    return MEDIA_TMP.cleanup


def warm_trainer() -> Callable[[], object]:
    """With what the first step of an optimizer imports."""
    for module in ("r2gen.__main__", "r2gen.train", "r2gen.evaluate", "r2gen.metrics", "torch._dynamo"):
        importlib.import_module(module)
    return lambda: None


def warm_lightning() -> Callable[[], object]:
    """By both of its names, and what reads its command line."""
    for module in ("lightning.pytorch.cli", "pytorch_lightning", "torch._dynamo"):
        importlib.import_module(module)
    return lambda: None


def warm_transformers() -> Callable[[], object]:
    """With the model that the trainings of tests have."""
    for module in ("torch._dynamo", "transformers.trainer_seq2seq", "trl.trainer.sft_trainer"):
        importlib.import_module(module)
    importlib.import_module("transformers.models.qwen2.modeling_qwen2")
    return lambda: None


WARM = {
    "tuner": warm_tuner,
    "trainer": warm_trainer,
    "lightning": warm_lightning,
    "transformers": warm_transformers,
}
end = WARM[sys.argv[1]]()
gc.freeze()  # or every process would collect much at its end
if (one := next_one(socket.socket(fileno=int(sys.argv[2])))) is not None:
    run(one)
else:
    end()
