"""The kinds of workloads, and how each runs one of `contract_programs`."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Kind:
    """`workload` is what a search space says for a program with such settings.

    Where it `tells_records`, the tuner gets every record whole; else only what a pattern finds in the output,
    or a framework tells. Its process holds `own_mib` before it trains. Where it is slow to start, `make test`
    leaves it out.
    """

    name: str
    workload: Callable[[str, Mapping[str, Any]], str | dict[str, Any]]
    tells_records: bool = True
    own_mib: int = 0
    is_slow: bool = False

    def __str__(self) -> str:
        return self.name


def _command(form: str, **own: Any) -> Callable[[str, Mapping[str, Any]], dict[str, Any]]:
    def workload(program: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        given = [f"{name}={{{name}}}" for name in settings]
        run = [sys.executable, str(HERE / "contract_script.py"), form, program, "{workdir}", *given]
        return {"kind": "command", "run": run, "directory": str(HERE), **own}

    return workload


def _lightning(program: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    given = [f"{name}={{{name}}}" for name in settings]
    run = [sys.executable, str(HERE / "contract_lightning.py"), program, "{workdir}", *given]
    return {"kind": "lightning", "run": run, "directory": str(HERE)}


def _trainer(program: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    given = [f"{name}={{{name}}}" for name in settings]
    run = [sys.executable, str(HERE / "contract_trainer.py"), program, "{workdir}", *given]
    return {"kind": "transformers", "run": run, "directory": str(HERE)}


KINDS = (
    Kind("generator", lambda program, _: f"contract_programs:{program}"),
    Kind("function", lambda program, _: f"contract_pushed:{program}"),
    Kind("command that reports", _command("reports", quality="reported")),
    Kind(
        "command that prints",
        _command("prints", quality={"score": r"score ([-\w.]+)"}, samples=r"seen (\d+)"),
        tells_records=False,
    ),
    Kind("lightning", _lightning, tells_records=False, own_mib=800, is_slow=True),
    Kind("transformers", _trainer, tells_records=False, own_mib=800, is_slow=True),
)
