"""A cluster node's answers: its hardware, and whether it can run the trials of a session."""

import importlib
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.storage import provenance
from autotune.storage.store import StoredSession
from autotune.system import machine_speed, telemetry
from autotune.system.telemetry import Hardware
from autotune.workloads import registry


def describe(*, on_gpu: bool) -> tuple[Hardware, tuple[float, ...]]:
    """Returns the hardware of this machine, without its GPUs unless `on_gpu`, and how fast it is."""
    found = telemetry.hardware()
    if not on_gpu:
        found = replace(found, gpus=(), refused=())
    return found, machine_speed.probe_s(on_gpu=bool(found.gpus))


def unfit(root: str, key: str, wanted: Mapping[str, Any]) -> str:
    """Returns why this machine cannot run the trials of a session, "" if it can; may raise the reason.

    `wanted` are the required facts about code and data.
    """
    session = StoredSession.open(Path(root))
    if session.key != key:
        return f"there is another session in {root}"
    space = session.space()
    workload = registry.load(space.workload)
    for module in workload.preload:
        importlib.import_module(module)
    here = provenance.code_facts(space, workload)
    with tempfile.TemporaryFile(dir=root):  # or raises
        pass
    unlike = (name for name in wanted if here[name] != wanted[name])
    return next((f"it has {name} {here[name]}, not {wanted[name]}" for name in unlike), "")
