"""`python -m lab`: record, replay, gpu."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from autotune.__main__ import main
from autotune.workloads import registry
from lab import tables

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(tables.record)
app.command()(tables.replay)


@app.command()
def gpu(
    output: Annotated[Path, typer.Option("--output", "-o", help="file for all figures")] = Path(
        "gpu-check.json"
    ),
) -> int:
    """Train on the GPU for ten minutes, and check what that shows."""
    from lab.gpu_check import command  # noqa: PLC0415 - imports the modules that run trials

    return command.main(registry.load(registry.BUILTIN).models["full"], output)


if __name__ == "__main__":
    sys.exit(main(load=lambda: app, name="lab"))
