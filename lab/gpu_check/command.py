"""`python -m lab gpu`: runs the points on this machine, prints the results, and writes them to a file."""

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from autotune.core import files
from autotune.core.errors import InputError
from autotune.core.settings import Setting
from autotune.sessions import gpus
from autotune.system import devices, nvml, scratch
from lab.gpu_check import check
from lab.gpu_check.bench import Bench

EXIT_FAILED = 1


def main(settings: Mapping[str, Setting], file: Path, most_s: float = check.MOST_S) -> int:
    """Checks the GPUs with a model of these `settings`; the exit code is 1 if a point fails.

    Trainings run on the emptiest GPU. Raises InputError if there is no usable GPU.
    """
    begun_s = time.monotonic()
    usable = gpus.usable(None)
    if not usable.gpus_per_trial:
        raise InputError(f"gpu: needs a GPU: {nvml.error() or 'none is visible'}")
    console, results = Console(soft_wrap=True), []
    for note in usable.notes:
        console.print(note, markup=False)
    with scratch.directory(".gpu-check-", Path.cwd()) as directory:
        bench = Bench.for_model(usable.hardware, usable.machine, settings, directory, begun_s + most_s)
        for points in (check.OF_MACHINE, check.OF_GPU):
            for one in check.run(bench, points):
                console.print(check.line(one))
                results.append(one)
            bench = _on_emptiest(bench)
    told = check.to_json(usable.hardware, results, time.monotonic() - begun_s, bench.trained, bench.failed)
    files.write(file, told)
    console.print(f"{file}: the same with all figures; docs/gpu.md says what to do with it", markup=False)
    return 0 if check.holds(results) else EXIT_FAILED


def _on_emptiest(bench: Bench) -> Bench:
    """Restricts the bench, and from here on this process, to the GPU with the most free memory."""
    emptiest = sorted(bench.hardware.gpus, key=lambda gpu: -gpu.free_bytes)[:1]
    devices.restrict_to(os.environ, emptiest)
    return replace(bench, hardware=replace(bench.hardware, gpus=tuple(emptiest)))
