"""Applies settings to scripts with Transformers' Trainer or Accelerate, and reports what they log."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from typing import Any, Mapping  # noqa: UP035 - for Python 3.8

import autotune_trainer
import autotune_wire
from autotune_batches import Total
from autotune_imports import After, replace
from autotune_overrides import Overrides, replace_init
from autotune_wire import TRAINER_PRECISIONS

# New names of arguments: the old ones are deprecated, and the new ones win.
_ALIASES = {
    "gradient_checkpointing": "activation_checkpointing",
    "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs",
}
_OF_WORKERS = {"dataloader_persistent_workers": False, "dataloader_prefetch_factor": None}
# To resume from a checkpoint in a directory that contains files of the tuner.
_RESUMABLE = {"save_only_model": False, "overwrite_output_dir": True}
_OF_THE_TUNER = {"save_strategy": "no", "save_total_limit": 1}  # the tuner requests checkpoints
# In a trial; `auto_find_batch_size` would change the batch size that is measured.
_OF_TRIAL = {
    **_RESUMABLE,
    **_OF_THE_TUNER,
    "push_to_hub": False,
    "eval_delay": 0,
    "auto_find_batch_size": False,
    "enable_jit_checkpoint": False,
}
_EVALUATED = {"eval_strategy": "steps", "eval_steps": 10**9}  # the callback evaluates when it is due
_LOCAL = "tensorboard"  # the only tracker kept: it needs no account
_UNMIXED = {"fp32": "highest", "tf32": "high"}  # torch's names for the precision of matrix products
_STEPS, _STEPS_OF_LAUNCHER = "gradient_accumulation_steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
_COUNTED = {"samples", "tokens"}  # counted by the hook, from the beginning of a trial


def attach(after: After, overrides: Overrides, wire: autotune_wire.Wire, total: Total) -> None:
    """Wraps arguments and models, once imported, to apply overrides; with a tuner, the Trainer too."""
    is_heard = autotune_wire.SOCKET in os.environ
    every = overrides.get(autotune_wire.IN_TRIAL).get("evaluate_every") if is_heard else None
    arguments = functools.partial(_make_arguments, overrides, every, is_heard)
    model = functools.partial(_make_model, overrides)
    _attach_accelerator(after, overrides, wire)
    after.do("transformers.training_args", lambda m: replace(m.TrainingArguments, "__post_init__", arguments))
    if overrides.get("model"):
        after.do("transformers.modeling_utils", lambda m: replace(m.PreTrainedModel, "__init__", model))
    if is_heard:
        after.do("transformers.trainer", lambda module: autotune_trainer.attach(module, wire, total, every))


def train(built: Any, settings: Mapping[str, Any]) -> None:
    """Trains the Trainer that a function has built, and saves its model to its output directory."""
    built.train()
    built.save_model()


def _make_arguments(
    overrides: Overrides, every: int | None, is_heard: bool, post_init: Any, self: Any
) -> None:
    is_trial = is_heard and not autotune_wire.is_whole()
    names = {field.name for field in dataclasses.fields(self)}
    taken = _put(self, names, overrides.get("trainer"))
    if is_heard:
        of_tuner = _of_trial(self) if is_trial else _of_whole(self)
        _put(self, names, {**of_tuner, **(_EVALUATED if every else {})})
    post_init(self)
    if is_trial:
        self.report_to = [place for place in self.report_to if place == _LOCAL]
    overrides.tell("trainer", taken)


def _of_trial(arguments: Any) -> dict[str, Any]:
    """Returns arguments for a trial, which loads no best model because its training never ends."""
    best: dict[str, Any] = {}
    if arguments.load_best_model_at_end:
        metric = arguments.metric_for_best_model or "loss"
        best = {"load_best_model_at_end": False, "metric_for_best_model": metric}
    return {**_OF_TRIAL, **best, "output_dir": os.environ[autotune_wire.WORKDIR]}


def _of_whole(arguments: Any) -> dict[str, Any]:
    kept = _OF_THE_TUNER if arguments.save_strategy == "no" else {}
    return {**_RESUMABLE, **kept, "output_dir": os.environ[autotune_wire.WORKDIR]}


def _put(arguments: Any, names: set[str], values: Mapping[str, Any]) -> list[str]:
    """Sets the `values` that are among `names`, the fields of `arguments`; returns their names."""
    taken = [name for name in values if name in names or name == "precision"]
    for name in taken:
        given = _precision(values[name]) if name == "precision" else {name: values[name]}
        for key, value in given.items():
            for known in {key, _ALIASES.get(key, key)} & names:
                setattr(arguments, known, value)
    if not arguments.dataloader_num_workers:
        for name in _OF_WORKERS.keys() & names:
            setattr(arguments, name, _OF_WORKERS[name])
    return taken


def _precision(name: str) -> dict[str, Any]:
    """Returns the arguments for a precision; raises ValueError if the Trainer does not have it."""
    if name not in TRAINER_PRECISIONS:
        raise ValueError(f"trainer.precision: must be one of {', '.join(TRAINER_PRECISIONS)}, got {name!r}")
    is_on_cpu = name == "bf16" and not sys.modules["torch"].cuda.is_available()
    return {**TRAINER_PRECISIONS[name], **({"use_cpu": True} if is_on_cpu else {})}


def _make_model(
    overrides: Overrides, init: Any, self: Any, /, config: Any, *args: Any, **kwargs: Any
) -> None:
    """Sets the attention implementation before the model is built, so that the model rejects bad ones."""
    values = overrides.get("model")
    if "attn_implementation" in values:
        config._attn_implementation = values["attn_implementation"]
    init(self, config, *args, **kwargs)
    overrides.tell("model", [name for name in values if name == "attn_implementation"])


def _attach_accelerator(after: After, overrides: Overrides, wire: autotune_wire.Wire) -> None:
    """Wraps the Accelerator's constructor once it is imported, and in a trial also its `log`."""

    def accelerators(module: Any) -> None:
        made = module.Accelerator
        if overrides.get("accelerator"):
            replace_init(made, "accelerator", overrides, _translated)
        if autotune_wire.SOCKET in os.environ:
            replace(made, "log", functools.partial(_log, wire))

    after.do("accelerate.accelerator", accelerators)


def _translated(known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Translates the search's arguments `known` for Accelerate, which has no names for fp32 and tf32."""
    values, plugin = dict(known), given.get("gradient_accumulation_plugin")
    precision, steps = values.get("mixed_precision"), values.get(_STEPS)
    if precision in _UNMIXED:
        sys.modules["torch"].set_float32_matmul_precision(_UNMIXED[precision])
        values["mixed_precision"] = "no"
    if steps is not None and plugin is not None:
        plugin.num_steps, values[_STEPS] = steps, 1  # only 1 is allowed beside a plugin
    elif steps is not None:
        os.environ[_STEPS_OF_LAUNCHER] = str(steps)  # would override the argument
    return values


def _log(
    wire: autotune_wire.Wire, log: Any, self: Any, values: Mapping[str, Any], *args: Any, **kwargs: Any
) -> None:
    """Logs by `Accelerator.log`, and reports the numbers as a record even if no tracker is set up."""
    scalars = {k: v for k, v in values.items() if _is_scalar(v) and k not in _COUNTED}
    if scalars and not autotune_wire.rank():
        wire.tell({"record": scalars})
    log(self, values, *args, **kwargs)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (int, float)) or (hasattr(value, "item") and getattr(value, "ndim", 1) == 0)
