"""Follows a Trainer of Transformers: reports its evaluations, and lets it stop and resume."""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
import threading
import time
from typing import Any, Mapping, Sequence  # noqa: UP035 - for Python 3.8

import autotune_batches
import autotune_wire
from autotune_batches import SyncSchedule, Total
from autotune_imports import replace
from autotune_saves import Counts
from autotune_saving import record

_STATE = "trainer_state.json"  # written last in a checkpoint
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_MOST_SAVING = 1 / 20  # largest share of the time for the tuner's own saves
_STOPPED = 128 + signal.SIGTERM
_clock_s = time.monotonic  # bound here, because a script may patch time.monotonic


def attach(module: Any, wire: autotune_wire.Wire, total: Total, every: int | None) -> None:
    """Wraps the Trainer; `every`: samples or tokens between evaluations, None: as in the script."""
    made = module.Trainer
    watch = type("AutotuneCallback", (_TrainerWatch, module.TrainerCallback), {})

    def build(init: Any, self: Any, /, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        autotune_batches.pads_with(_padding(self))
        self.add_callback(watch(self, wire, total, every))

    replace(made, "__init__", build)
    replace(made, "evaluate", functools.partial(_evaluate, wire, []))
    replace(made, "train", functools.partial(_train, []))


def _padding(trainer: Any) -> int | None:
    """Returns the token that pads a Trainer's batches, from its tokenizer; None if unknown."""
    maker = getattr(trainer, "processing_class", None)
    maker = getattr(maker, "tokenizer", maker)
    token: int | None = getattr(maker, "pad_token_id", None)
    return token


def _evaluate(
    wire: autotune_wire.Wire, depth: list[None], evaluate: Any, self: Any, *args: Any, **kwargs: Any
) -> Any:
    """Evaluates and reports the result, unless called within an evaluation on several data sets."""
    depth.append(None)
    try:
        metrics = evaluate(self, *args, **kwargs)
    finally:
        depth.pop()
    if not depth:
        _tell(wire, self.state, metrics)
    return metrics


def _tell(wire: autotune_wire.Wire, state: Any, metrics: Mapping[str, Any]) -> None:
    """Reports the numbers of an evaluation, unless it came before the first step."""
    scalars = {name: value for name, value in metrics.items() if isinstance(value, (int, float))}
    if state.global_step and not autotune_wire.rank():
        wire.tell({"record": scalars})


def _train(
    begun: list[None], train: Any, self: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Resumes the first training from the trial's checkpoint, if any, else as the script says."""
    own, begin = self.args.output_dir, resume_from_checkpoint
    if begin is True or (isinstance(begin, str) and os.path.dirname(begin) == own):  # noqa: PTH120
        begin = None  # a checkpoint that may be incomplete
    newest = None if begun else _newest(own)
    begun.append(None)
    return train(self, newest or begin, *args, **kwargs)


def _newest(directory: str) -> str | None:
    """Returns the newest complete checkpoint in `directory`, None if there is none."""
    names = os.listdir(directory) if os.path.isdir(directory) else []  # noqa: PTH112, PTH208
    checkpoints = [(int(match.group(1)), name) for name in names if (match := _CHECKPOINT.fullmatch(name))]
    places = [os.path.join(directory, name) for _, name in sorted(checkpoints)]  # noqa: PTH118
    whole = [place for place in places if os.path.exists(os.path.join(place, _STATE))]  # noqa: PTH110, PTH118
    return whole[-1] if whole else None


def _evaluations(history: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    evaluations: dict[int, dict[str, Any]] = {}
    for logged in history:
        if logged.get("step") and any(name.startswith("eval_") for name in logged):
            evaluations.setdefault(logged["step"], {}).update(logged)
    return evaluations


class _TrainerWatch:
    """Evaluates when due, saves a checkpoint then and on a request to stop, and then stops.

    Several processes would have to agree on a checkpoint, so they save at every evaluation, not on request.
    """

    def __init__(self, trainer: Any, wire: autotune_wire.Wire, total: Total, every: int | None) -> None:
        self._trainer, self._wire, self._total, self._every = trainer, wire, total, every
        self._evaluated = 0
        self._is_alone = autotune_wire.world_size() == 1
        self._schedule = SyncSchedule(every or 1)
        self._is_asked = self._listens = False
        self._saving_s = self._took_s = 0.0
        self._saved_s = -float("inf")

    def on_train_begin(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Reports the checkpoint's evaluation again, or requests one that is missing."""
        self._listen()
        self._evaluated = self._times(state.global_step)
        evaluations = _evaluations(state.log_history)
        if state.global_step in evaluations:
            _tell(self._wire, state, evaluations[state.global_step])
        elif len(evaluations) < self._evaluated:
            args.eval_on_start = True

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        """Requests an evaluation if it is due, or a save instead if asked to stop."""
        before, self._evaluated = self._evaluated, self._times(state.global_step)
        control.should_evaluate |= self._evaluated > before
        if self._is_to_end():
            control.should_save, control.should_evaluate = True, False
            self._saving_s = _clock_s()

    def _times(self, step: int) -> int:
        if not self._every:
            return 0
        return self._evaluated if (seen := self._seen(step)) is None else seen // self._every

    def _seen(self, step: int) -> int | None:
        """Returns the samples or tokens so far; None if processes must synchronize for that, but not yet."""
        if self._is_alone:
            return int(self._total.seen)
        if not self._schedule.is_due(step):
            return None
        torch = sys.modules["torch"]
        seen = torch.tensor(self._total.seen, device=self._trainer.args.device)
        torch.distributed.broadcast(seen, 0)
        self._schedule.synced(step, int(seen))
        return int(seen)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Saves in the middle of an evaluation if asked to stop; the evaluation is repeated on resuming."""
        if self._listens and self._is_to_end():
            self._saving_s = _clock_s()
            self._trainer._save_checkpoint(self._trainer.model, None)
            self._trainer.callback_handler.on_save(args, state, control)  # exits

    def on_evaluate(self, args: Any, _state: Any, control: Any, **_: Any) -> None:
        """Requests a save, unless the script saves anyway or slow saves would become too frequent."""
        self._saving_s = _clock_s()
        is_due = self._saving_s - self._saved_s >= self._took_s / _MOST_SAVING
        if args.save_strategy == "no":
            control.should_save |= is_due or not self._is_alone

    def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Notes the samples and tokens behind the checkpoint, and exits if asked to stop."""
        file = os.path.join(args.output_dir, f"checkpoint-{state.global_step}", _STATE)  # noqa: PTH118
        if autotune_wire.WORKDIR in os.environ:
            record(file, Counts(self._total.samples, self._total.tokens))
        self._saved_s = _clock_s()
        self._took_s = self._saved_s - self._saving_s
        if self._is_to_end():
            raise SystemExit(_STOPPED)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Restores the default SIGTERM handler."""
        if self._listens:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._listens = False

    def _listen(self) -> None:
        """Treats SIGTERM as a request to stop, unless the script handles it."""
        is_free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._is_alone and is_free and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._ask)
            self._listens = True

    def _ask(self, *_: Any) -> None:
        self._is_asked = True

    def _is_to_end(self) -> bool:
        return self._is_alone and (self._is_asked or self._wire.is_stopped())
