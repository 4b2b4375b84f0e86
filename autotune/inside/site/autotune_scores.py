"""Reports the scores that a script logs to TensorBoard or W&B."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Callable, Dict, Iterator, Mapping, Tuple  # noqa: UP035 - for Python 3.8

import autotune_wire
from autotune_imports import After, replace

Logged = Tuple[str, Dict[str, Any]]  # noqa: UP006 - the same; the directory, and values by name


def listen(after: After, heard: Callable[[str, str, dict[str, Any]], None]) -> None:
    """Calls `heard` with the logger's name, the directory and the values whenever something is logged."""

    def wrap(owner: Any, method: str, read: Callable[..., Logged], logger: str) -> None:
        def tells(write: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            with suppress(Exception):  # the writer reports what is wrong
                heard(logger, *read(self, *args, **kwargs))
            return write(self, *args, **kwargs)

        replace(owner, method, tells)

    for module in ("torch.utils.tensorboard.writer", "tensorboardX.writer"):
        after.do(module, lambda module: wrap(module.FileWriter, "add_summary", _of_summary, "tensorboard"))
    after.do("wandb.sdk.wandb_run", lambda module: wrap(module.Run, "log", _of_run, "wandb"))


def tell(wire: autotune_wire.Wire, names: frozenset[str], _: str, place: str, values: dict[str, Any]) -> None:
    """Reports numbers that are logged under one of the `names`."""
    scores = numbers({name: values[name] for name in names & values.keys()})
    if scores and not autotune_wire.rank():
        wire.tell({"logged": {"scores": scores, "place": os.path.abspath(place)}})  # noqa: PTH100 - of a text


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Returns those of the logged values that are numbers."""
    found = {}
    for name, value in values.items():
        with suppress(Exception):  # an image or a table
            found[name] = float(value)
    return found


def _of_summary(writer: Any, summary: Any, *_: Any, **__: Any) -> Logged:
    by_tag = {value.tag: _scalars(value) for value in summary.value}
    return writer.get_logdir(), {tag: scalars[0] for tag, scalars in by_tag.items() if len(scalars) == 1}


def _scalars(value: Any) -> list[Any]:
    if value.WhichOneof("value") == "simple_value":
        return [value.simple_value]
    return [*value.tensor.float_val, *value.tensor.double_val]


def _of_run(run: Any, data: Any, *_: Any, **__: Any) -> Logged:
    """Returns the directory and values of a log of W&B; `run.dir` is the run's `files` directory."""
    return os.path.dirname(run.dir), dict(_flat(data))  # noqa: PTH120 - a script may have no pathlib yet


def _flat(values: dict[str, Any], above: str = "") -> Iterator[Tuple[str, Any]]:  # noqa: UP006 - the same
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}/")
        else:
            yield f"{above}{name}", value
