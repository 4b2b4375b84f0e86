"""Applies settings to scripts with Transformers' Trainer or Accelerate, and reports what they log."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import signal
import sys
import threading
import time
from typing import Any, Callable, Mapping  # noqa: UP035 - for Python 3.8

import autotune_batches
import autotune_wire
from autotune_batches import SyncSchedule, Total
from autotune_imports import After, replace
from autotune_overrides import MATMUL, Overrides, replace_init
from autotune_saves import Counts, record
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
_STEPS, _STEPS_OF_LAUNCHER = "gradient_accumulation_steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
_STATE = "trainer_state.json"  # written last in a checkpoint
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_MOST_SAVING = 1 / 20  # largest share of the time for the tuner's own saves
_clock_s = time.monotonic  # bound here, because a script may patch time.monotonic


def attach(after: After, overrides: Overrides, wire: autotune_wire.Wire, total: Total) -> None:
    """Wraps arguments and models, once imported, to apply overrides; with a tuner, the Trainer too."""
    is_heard = autotune_wire.SOCKET in os.environ
    every = overrides.get(autotune_wire.IN_TRIAL).get("evaluate_every") if is_heard else None
    arguments = functools.partial(_make_arguments, overrides, every, is_heard)

    def model(init: Any, self: Any, /, config: Any, *args: Any, **kwargs: Any) -> None:
        """Sets the attention implementation before the model is built, so that the model rejects bad ones."""
        values = overrides.get("model")
        if "attn_implementation" in values:
            config._attn_implementation = values["attn_implementation"]
        init(self, config, *args, **kwargs)
        overrides.tell("model", {"attn_implementation"} & values.keys())

    def accelerators(module: Any) -> None:
        if overrides.get("accelerator"):
            replace_init(module.Accelerator, "accelerator", overrides, _translated)
        if is_heard:
            replace(module.Accelerator, "log", functools.partial(_log, wire))

    after.do("accelerate.accelerator", accelerators)
    after.do("transformers.training_args", lambda m: replace(m.TrainingArguments, "__post_init__", arguments))
    if overrides.get("model"):
        after.do("transformers.modeling_utils", lambda m: replace(m.PreTrainedModel, "__init__", model))
    if is_heard:
        after.do("transformers.trainer", lambda module: _attach_trainer(module, wire, total, every))


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
        own = {**(_EVALUATED if every else {}), "output_dir": os.environ[autotune_wire.WORKDIR]}
        own.update(_OF_TRIAL if is_trial else _RESUMABLE)
        if self.save_strategy == "no":
            own.update(_OF_THE_TUNER)
        if is_trial and self.load_best_model_at_end:  # not loaded, because a trial's training never ends
            metric = self.metric_for_best_model or "loss"
            own.update(load_best_model_at_end=False, metric_for_best_model=metric)
        _put(self, names, own)
    post_init(self)
    if is_trial:
        self.report_to = [place for place in self.report_to if place == "tensorboard"]  # needs no account
    overrides.tell("trainer", taken)


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


def _translated(known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Translates the search's arguments `known` for Accelerate, which has no names for fp32 and tf32."""
    values, plugin = dict(known), given.get("gradient_accumulation_plugin")
    precision, steps = values.get("mixed_precision"), values.get(_STEPS)
    if precision in MATMUL:
        sys.modules["torch"].set_float32_matmul_precision(MATMUL[precision])
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
    # The hook counts samples and tokens, from the beginning of a trial.
    scalars = {k: v for k, v in values.items() if k not in ("samples", "tokens") and _is_scalar(v)}
    if scalars and not autotune_wire.rank():
        wire.tell({"record": scalars})
    log(self, values, *args, **kwargs)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (int, float)) or (hasattr(value, "item") and getattr(value, "ndim", 1) == 0)


def _attach_trainer(module: Any, wire: autotune_wire.Wire, total: Total, every: int | None) -> None:
    """Wraps the Trainer; `every`: samples or tokens between evaluations, None: as in the script."""
    depth, has_begun = 0, False
    watch = type("AutotuneCallback", (_TrainerWatch, module.TrainerCallback), {})

    def build(init: Any, self: Any, /, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        maker = getattr(self, "processing_class", None)  # of the batches; a processor has a tokenizer
        autotune_batches.pads_with(getattr(getattr(maker, "tokenizer", maker), "pad_token_id", None))
        self.add_callback(watch(self, wire, total, every, lambda: depth > 0))

    def evaluate(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        """Evaluates and reports the result, unless called within an evaluation on several data sets."""
        nonlocal depth
        depth += 1
        try:
            metrics = original(self, *args, **kwargs)
        finally:
            depth -= 1
        if not depth:
            _tell(wire, self.state, metrics)
        return metrics

    def train(original: Any, self: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Resumes the first training from the trial's checkpoint, if any, else as the script says."""
        nonlocal has_begun
        own, begin = self.args.output_dir, resume_from_checkpoint
        if begin is True or (isinstance(begin, str) and os.path.dirname(begin) == own):  # noqa: PTH120
            begin = None  # a checkpoint that may be incomplete
        newest = None if has_begun else _newest(own)
        has_begun = True
        return original(self, newest or begin, *args, **kwargs)

    replace(module.Trainer, "__init__", build)
    replace(module.Trainer, "evaluate", evaluate)
    replace(module.Trainer, "train", train)


def _tell(wire: autotune_wire.Wire, state: Any, metrics: Mapping[str, Any]) -> None:
    scalars = {name: value for name, value in metrics.items() if isinstance(value, (int, float))}
    if state.global_step and not autotune_wire.rank():
        wire.tell({"record": scalars})


def _newest(directory: str) -> str | None:
    names = os.listdir(directory) if os.path.isdir(directory) else []  # noqa: PTH112, PTH208
    checkpoints = [(int(match.group(1)), name) for name in names if (match := _CHECKPOINT.fullmatch(name))]
    places = [os.path.join(directory, name) for _, name in sorted(checkpoints)]  # noqa: PTH118
    whole = [place for place in places if os.path.exists(os.path.join(place, _STATE))]  # noqa: PTH110, PTH118
    return whole[-1] if whole else None


class _TrainerWatch:
    """Evaluates when due; saves a checkpoint at evaluations and before it stops on request."""

    def __init__(
        self,
        trainer: Any,
        wire: autotune_wire.Wire,
        total: Total,
        every: int | None,
        is_heard: Callable[[], bool],  # True while an evaluation runs whose result will be reported
    ) -> None:
        self._trainer, self._wire, self._total, self._every = trainer, wire, total, every
        self._is_heard = is_heard
        self._evaluated = 0
        # Several processes would have to agree on a checkpoint: they save at evaluations, not on request.
        self._is_alone = autotune_wire.world_size() == 1
        self._schedule = SyncSchedule(every or 1)
        self._is_asked = self._listens = False
        self._saving_s = self._took_s = 0.0
        self._saved_s = -float("inf")

    def on_train_begin(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Reports the checkpoint's evaluation again, or requests one that is missing; handles SIGTERM."""
        is_free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # not handled by the script
        if self._is_alone and is_free and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._ask)
            self._listens = True
        self._evaluated = self._times(state.global_step)
        evaluations: dict[int, dict[str, Any]] = {}
        for logged in state.log_history:
            if logged.get("step") and any(name.startswith("eval_") for name in logged):
                evaluations.setdefault(logged["step"], {}).update(logged)
        if state.global_step in evaluations:
            _tell(self._wire, state, evaluations[state.global_step])
        elif len(evaluations) < self._evaluated:
            args.eval_on_start = True

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        before, self._evaluated = self._evaluated, self._times(state.global_step)
        control.should_evaluate |= self._evaluated > before
        if self._is_to_end():
            control.should_save, control.should_evaluate = True, False
            self._saving_s = _clock_s()

    def _times(self, step: int) -> int:
        """Returns how many evaluations should have been made, as far as processes have synchronized."""
        if not self._every:
            return 0
        if self._is_alone:
            return int(self._total.seen) // self._every
        if not self._schedule.is_due(step):
            return self._evaluated
        torch = sys.modules["torch"]
        seen = torch.tensor(self._total.seen, device=self._trainer.args.device)
        torch.distributed.broadcast(seen, 0)
        self._schedule.synced(step, int(seen))
        return int(seen) // self._every

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Saves in the middle of an evaluation if asked to stop; the evaluation is repeated on resuming."""
        if self._listens and self._is_to_end():
            self._saving_s = _clock_s()
            self._trainer._save_checkpoint(self._trainer.model, None)
            self._trainer.callback_handler.on_save(args, state, control)  # exits

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        """Requests a save, unless the script saves anyway or slow saves would become too frequent."""
        if metrics and not self._is_heard():  # by an `evaluate` that replaces the Trainer's own
            _tell(self._wire, state, metrics)
        self._saving_s = _clock_s()
        is_due = self._saving_s - self._saved_s >= self._took_s / _MOST_SAVING
        if args.save_strategy == "no":
            control.should_save |= is_due or not self._is_alone

    def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        file = os.path.join(args.output_dir, f"checkpoint-{state.global_step}", _STATE)  # noqa: PTH118
        if autotune_wire.WORKDIR in os.environ:
            record(os.environ[autotune_wire.WORKDIR], file, Counts(self._total.samples, self._total.tokens))
        self._saved_s = _clock_s()
        self._took_s = self._saved_s - self._saving_s
        if self._is_to_end():
            raise SystemExit(128 + signal.SIGTERM)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        if self._listens:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._listens = False

    def _ask(self, *_: Any) -> None:
        self._is_asked = True

    def _is_to_end(self) -> bool:
        return self._is_alone and (self._is_asked or self._wire.is_stopped())
