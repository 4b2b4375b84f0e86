"""Checkpoints: written atomically, loaded without executing pickled code, and checked for mismatches."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from r2gen.errors import InputError, StorageError
from r2gen.shortage import is_out_of_memory

FORMAT = 1
_SHOWN = 3


def prepare(directory: Path) -> None:
    """Creates `directory` if missing, and checks that it is writable before hours of training."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise StorageError(f"directory {directory}: cannot be written: {error.strerror}") from None


def save(file: Path, state: Mapping[str, Any]) -> None:
    """Writes `state` to `file` atomically and syncs it: a kill leaves the old file or the new one.

    Raises StorageError, leaving the old file as it was, if it cannot be written.
    """
    temporary = file.with_name(f"{file.name}.tmp")
    try:
        with temporary.open("wb") as stream:
            torch.save({"format": FORMAT, **state}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
        _sync(file.parent)
    except (OSError, RuntimeError) as error:
        temporary.unlink(missing_ok=True)
        # After a failed write torch.save closes its archive, which raises another error.
        fault = error if isinstance(error, OSError) else error.__context__
        if not isinstance(fault, OSError):
            raise
        raise StorageError(
            f"checkpoint {file}: cannot be written: {fault.strerror}; free some space and run the same "
            "command again: it goes on from the checkpoint before, if there is one"
        ) from None


def _sync(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def load(file: Path) -> dict[str, Any]:
    """Loads a checkpoint of this trainer or of the original R2Gen, with tensors on the CPU.

    Raises InputError if it cannot be read or is no such checkpoint.
    """
    try:
        with torch.serialization.safe_globals(_numpy_scalars()):
            state = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(f"checkpoint {file}: cannot be read: {error.strerror}") from None
    except Exception as error:
        if is_out_of_memory(error):
            raise
        # Other files can raise any exception.
        raise InputError(
            f"checkpoint {file}: is not a checkpoint, or holds more than tensors and plain values"
        ) from None
    if not isinstance(state, dict) or not ("state_dict" in state or state.get("format") == FORMAT):
        raise InputError(f"checkpoint {file}: neither ours (format {FORMAT}) nor the original R2Gen's")
    return state


def require(state: Mapping[str, Any], names: Sequence[str], file: Path) -> None:
    """Raises InputError if a checkpoint lacks one of `names`."""
    if lacking := [name for name in names if name not in state]:
        raise InputError(f"checkpoint {file}: is not whole: it lacks {', '.join(lacking)}")


def _numpy_scalars() -> list[Any]:
    """Returns the NumPy types that an original checkpoint needs for its best score."""
    import numpy as np  # noqa: PLC0415
    from numpy._core.multiarray import scalar  # noqa: PLC0415 - the name in such a checkpoint

    return [(scalar, "numpy.core.multiarray.scalar"), scalar, np.dtype, np.dtypes.Float64DType]


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], file: Path) -> None:
    """Loads `weights` into `model`; raises InputError naming the keys and shapes that do not fit."""
    wanted = model.state_dict()
    mistakes = [f"has no {key}" for key in wanted.keys() - weights.keys()]
    mistakes += [f"has {key}, which the model has not" for key in weights.keys() - wanted.keys()]
    mistakes += [
        f"{key} is {list(weights[key].shape)}, the model's is {list(wanted[key].shape)}"
        for key in wanted.keys() & weights.keys()
        if weights[key].shape != wanted[key].shape
    ]
    if mistakes:
        listed = "; ".join(sorted(mistakes)[:_SHOWN])
        more = f"; and {len(mistakes) - _SHOWN} more" if len(mistakes) > _SHOWN else ""
        raise InputError(f"checkpoint {file}: does not fit the model: {listed}{more}")
    model.load_state_dict(dict(weights))


def require_vocabulary(stored: Sequence[str], counted: Sequence[str], file: Path) -> None:
    """Raises InputError if a checkpoint's words are not the words `counted` in the training split."""
    differ = ((was, now) for was, now in zip_longest(stored, counted) if was != now)
    if (first := next(differ, None)) is not None:
        raise InputError(
            f"{file}: comes from a run on other reports: its vocabulary has {len(stored)} words, that of the "
            f"data has {len(counted)}; the first difference is {first[0]!r}, now {first[1]!r}"
        )


def rng_state() -> dict[str, Any]:
    """Returns the random state of the CPU and, if there is one, of the CUDA device."""
    cuda = {"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {}
    return {"cpu": torch.get_rng_state(), **cuda}


def set_rng_state(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
