"""How a search begins: what was given becomes a session, or a session is opened again."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from autotune import builtin, cli_session, prepare, provenance, telemetry, workloads
from autotune.errors import InputError
from autotune.store import WANDB_MODES, Options, Session
from autotune.telemetry import Hardware


@dataclass(frozen=True)
class Given:
    """What the command line says of the search space and of the baseline; what is None was not said."""

    space: str | None
    overrides: Mapping[str, Mapping[str, Any]]
    model: str | None
    baseline: Path | None
    data: Path | None
    skip_bad_samples: bool


def search(session: Path | None, given: Given, options: Options, machine: Hardware, *, as_json: bool) -> int:
    """Makes a new session and runs it; nothing is made where something given is wrong."""
    file = builtin.space_file(given.space) if given.space else builtin.space_for(machine)
    asked = prepare.read_space(file, given.overrides)
    workload = workloads.load(asked.workload)
    workload.require_gpus(options.gpus_per_trial)
    settings = prepare.settings(
        workload, given.model, given.baseline, given.data, skip_bad_samples=given.skip_bad_samples
    )
    space, notes = prepare.complete(asked, settings, workload, machine, str(file))
    root = session or Path("runs", f"{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    if options.warm_start:
        known = Session.open(Path(options.warm_start))
        prepare.warm_start(known, space, workload, machine.description, workload.revision())
    facts = provenance.collect(root.name, space, workload, machine, options.seed)
    opened = Session.create(root, space, options, facts)
    from autotune import cli_run  # noqa: PLC0415 - Ray and Optuna take seconds: what is wrong is said before

    return cli_run.run(opened, root, space, workload, machine, notes=notes, as_json=as_json)


def resume(session: Path, *, more: int, time_s: float | None, as_json: bool) -> int:
    """Opens a session again and runs what is left of it, or more."""
    opened, space, workload = cli_session.opened(session)
    opened.require_current(session)
    with opened.lock():  # who comes second is told so at once
        options, then = opened.options(), opened.info().get("provenance", {})
        notes = workload.check(space.baseline)
        found, _ = machine(options.address, options.gpus_per_trial)
        now = provenance.collect(session.name, space, workload, found, options.seed)
        notes += provenance.require_same(session, then, now, workload.places)
    from autotune import cli_run  # noqa: PLC0415 - as above

    return cli_run.run(
        opened, session, space, workload, found, notes=notes, more=more, time_s=time_s, as_json=as_json
    )


def machine(address: str | None, gpus_per_trial: float | None) -> tuple[Hardware, float]:
    """What trials may use, here or in the cluster at `address`, and the GPUs of each."""
    if address is None:
        found = telemetry.hardware()
    else:
        from autotune import engine_cluster  # noqa: PLC0415 - Ray takes a second

        found = engine_cluster.hardware(address)
    gpus = prepare.gpus_per_trial(gpus_per_trial, found)
    if not gpus:
        return replace(found, gpus=()), gpus
    if address is None:
        from autotune.doctor import torch  # noqa: PLC0415 - it starts a process that imports torch

        if not (seen := torch(found)).ok:
            raise InputError(f"torch {seen.detail}; {seen.remedy}; or search on the CPU: --gpus-per-trial 0")
    return found, gpus


def check_wandb(mode: str) -> None:
    """Raises InputError where runs cannot be kept as they are asked for."""
    prepare.one_of("--wandb", mode, WANDB_MODES)
    if mode == "online" and not os.environ.get("WANDB_API_KEY"):
        raise InputError("--wandb online: needs WANDB_API_KEY in the environment, which is not set")
