"""The search spaces that come with the tuner, by kind of machine."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.core.errors import InputError

if TYPE_CHECKING:  # otherwise shell completion would query the GPUs
    from autotune.system.telemetry import Hardware

_LAPTOP_BYTES = 12 * 2**30


def spaces_dir() -> Path:
    """Returns the directory of search spaces: in the installed package, or next to it in a checkout."""
    here = Path(__file__).parents[1]
    return here / "search_spaces" if (here / "search_spaces").is_dir() else here.parent / "search_spaces"


def names() -> list[str]:
    return sorted(file.stem for file in spaces_dir().glob("*.yaml"))


def space_for(hardware: "Hardware", *, drawn: bool = False) -> Path:
    """Returns the search space for this machine's smallest GPU, or for its CPU."""
    if hardware.device_bytes is None:
        return spaces_dir() / "cpu.yaml"
    if drawn:  # synthetic data: a small model, which is searched in minutes
        return spaces_dir() / "gpu-small.yaml"
    return spaces_dir() / ("laptop-8gb.yaml" if hardware.device_bytes < _LAPTOP_BYTES else "gpu.yaml")


def space_file(name: str) -> Path:
    """Returns the file of a search space, by path or built-in name; raises InputError if it is neither."""
    with suppress(OSError):  # a name that is too long for a file
        if Path(name).is_file():
            return Path(name)
    if name in names():
        return spaces_dir() / f"{name}.yaml"
    raise InputError(f"search space {name}: neither a file nor one of {', '.join(names())}")
