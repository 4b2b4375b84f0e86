"""The points of a check: run in order, printed as they finish, and written to a file that can be shared."""

import json
import math
import os
import platform
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.text import Text

from autotune.core import secrecy
from autotune.core.errors import printable
from autotune.system.telemetry import Hardware
from lab.gpu_check import of_card, of_machine, of_memory, of_model, of_scripts, of_speed
from lab.gpu_check.bench import Bench
from lab.gpu_check.verdicts import Found

MOST_S = 600.0
_PACKAGES = ("autotune-r2gen", "torch", "triton", "torchao", "nvidia-ml-py", "ray")
_VARIABLES = ("CUDA_", "NCCL_", "NVIDIA_", "OMP_", "PYTORCH_", "TORCH_")  # that decide how torch runs
_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-f]{4,}[0-9a-f-]*")  # in CUDA_VISIBLE_DEVICES
_SHORTEST_HOST = 3  # letters: a shorter host name also occurs within other words
_NAME_WIDTH, _WORD_WIDTH = 42, 10


@dataclass(frozen=True)
class Point:
    """One point of the check. `ask` yields results and need not catch errors."""

    name: str
    ask: Callable[[Bench], Iterable[Found]]
    most_s: float = 60.0


OF_MACHINE = (Point("devices", of_machine.devices_agree), Point("two ranks", of_scripts.two_ranks))
# The longest point comes last, and gets the remaining time.
OF_GPU = (
    Point("card", of_card.the_card_itself),
    Point("forked trials", of_machine.forked_trials_open_cuda),
    Point("lost GPU", of_machine.lost_gpu_is_no_cpu),
    Point("out of memory", of_memory.out_of_memory),
    Point("killed trial", of_memory.killed_trial),
    Point("two at once", of_memory.two_at_once),
    Point("script", of_scripts.plain_script),
    Point("speed", of_speed.stamped_speed),
    Point("evaluation", of_speed.second_evaluation),
    Point("model", of_model.every_combination, math.inf),
)


def run(bench: Bench, points: Sequence[Point]) -> Iterator[Found]:
    """Yields each point's results as they come. A point that raises fails; the next one runs."""
    for point in points:
        if bench.left_s <= 0:
            yield Found(point.name, None, "the time is over")
            continue
        try:
            yield from point.ask(bench.within(point.most_s))
        except Exception as error:  # noqa: BLE001 - any error is a result of the point
            message = " ".join(printable(error).split())
            yield Found(point.name, False, f"the check broke off: {type(error).__name__}: {message}")


def line(found: Found) -> Text:
    """Formats a result as `doctor` prints a capability."""
    word, style = {True: ("yes", "green"), False: ("no", "red"), None: ("not asked", "yellow")}[found.ok]
    text = Text(f"{word:<{_WORD_WIDTH}}", style=style)
    return text.append(f" {found.name:<{_NAME_WIDTH}} {printable(found.detail)}", style="default")


def holds(found: Iterable[Found]) -> bool:
    """Returns True if every checked point holds and at least one was checked."""
    answers = [one.ok for one in found if one.ok is not None]
    return bool(answers) and all(answers)


def to_json(
    hardware: Hardware,
    found: Sequence[Found],
    seconds: float,
    trained: Sequence[Mapping[str, Any]] = (),
    failed: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Returns everything as one JSON object for an issue, without keys, home directories or host names.

    `trained`: what each trial was, and where its time went. `failed`: endings and last words of trials, some
    of which were meant to fail.
    """
    whole = {
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(seconds),
        "holds": holds(found),
        "machine": _machine(hardware),
        "versions": versions(),
        "points": [asdict(one) for one in found],
        "trials": list(trained),
        "failed_trials": list(failed),
    }
    return json.dumps(secrecy.without_secrets(_without_place(whole)), indent=1)


def _machine(hardware: Hardware) -> Mapping[str, Any]:
    """Describes the GPUs without their UUIDs, which identify a machine."""
    kept = ("label", "name", "memory_bytes", "used_bytes", "compute_capability", "exclusive")
    return {
        "gpus": [{name: getattr(gpu, name) for name in kept} for gpu in hardware.gpus],
        "cards": of_card.facts(),
        **of_card.surroundings(),
        "is_divided": any(gpu.uuid.startswith("MIG-") for gpu in hardware.gpus),
        "driver": hardware.driver,
        "cpus": hardware.cpus,
        "host_memory_bytes": hardware.host_memory_bytes,
        "environment": {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)},
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def versions() -> dict[str, str | None]:
    """Returns the versions of this project and its numerical packages, None if not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _without_place(value: Any) -> Any:
    """Replaces the names of the machine, its GPUs' UUIDs, and the working directory."""
    here, host = str(Path.cwd()), socket.gethostname()
    names = {here: "(here)", **({host: "(host)"} if len(host) >= _SHORTEST_HOST else {})}
    for name, instead in names.items():
        value = secrecy.each_text(value, partial(_replaced, name, instead))
    return secrecy.each_text(value, partial(_UUID.sub, r"\1-(hidden)"))


def _replaced(name: str, instead: str, text: str) -> str:
    return text.replace(name, instead)
