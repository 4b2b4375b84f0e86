"""Applies a search's settings to Lightning's trainer, reports its validations, and lets its fits resume."""

from __future__ import annotations

import functools
import inspect
import os
import shutil
import sys
import time
from typing import Any, Mapping, Sequence  # noqa: UP035 - for Python 3.8

import autotune_wire
from autotune_imports import After, attempt, replace
from autotune_overrides import Overrides

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_CHECKPOINT = "autotune.ckpt"
_UNSAVED = "no checkpoint was saved"
_SAVED_SHARE = 0.05  # largest share of a trial's time for checkpoints that only a kill would need
_clock_s = time.monotonic  # bound here, because a script may patch time.monotonic
# Useless in a trial; applies if a function builds what is trained.
_QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
_wires: list[autotune_wire.Wire] = []  # to the tuner, if there is one
_begun: list[None] = []  # not empty once a fit has begun


def arm(after: After, overrides: Overrides, wire: autotune_wire.Wire) -> None:
    """Makes trainers take the search's arguments, and watches them if there is a tuner."""
    _wires[:] = [wire] if autotune_wire.SOCKET in os.environ else []
    for package in _PACKAGES:
        after.do(f"{package}.trainer.trainer", functools.partial(_attach, overrides, package))


def train(built: Sequence[Any], settings: Mapping[str, Any]) -> None:
    """Fits what a function has built: a module, its data, and optionally a trainer."""
    module, data, *rest = built  # data: a data module, a loader, or a pair of training and validation loader
    if rest:
        trainer = rest[0]
    else:
        base = next((cls for cls in type(module).__mro__ if cls.__name__ == "LightningModule"), None)
        package = next((one for one in _PACKAGES if base and base.__module__.startswith(f"{one}.")), None)
        if package is None:
            raise TypeError(f"build: the first object must be a LightningModule, got {type(module).__name__}")
        quiet = _QUIET if _is_in_trial() else {}
        trainer = sys.modules[package].Trainer(**{**quiet, **settings.get("trainer", {})})
    trainer.fit(module, *(data if isinstance(data, (tuple, list)) else (data,)))


def _attach(overrides: Overrides, package: str, module: Any) -> None:
    def make(init: Any, self: Any, /, *args: Any, **kwargs: Any) -> None:
        takes, names = inspect.signature(init).parameters, inspect.signature(type(self)).parameters
        given = {**dict(zip(names, args)), **kwargs}  # noqa: B905 - for Python 3.8
        if _wires:
            if not given.get("default_root_dir"):
                # Of this process: `LightningCLI` refuses a directory that already contains its config.
                place = os.environ[autotune_wire.WORKDIR]
                given["default_root_dir"] = os.path.join(place, f"lightning-{os.getpid()}")  # noqa: PTH118
            callbacks = given.get("callbacks") or []
            callbacks = callbacks if isinstance(callbacks, list) else [callbacks]
            given["callbacks"] = [*callbacks, _callback(package)]
        if _is_in_trial():
            given["num_sanity_val_steps"] = 0
        taken = {name: value for name, value in overrides.get("trainer").items() if name in takes}
        init(self, **{**given, **taken})
        overrides.tell("trainer", taken)

    replace(module.Trainer, "__init__", make)
    if _wires:
        replace(module.Trainer, "fit", _fit)


def _fit(fit: Any, *args: Any, **kwargs: Any) -> Any:
    """Resumes the first fit from the last checkpoint, whatever the script asks for."""
    is_first, _begun[:] = not _begun, [None]
    if not (is_first and os.path.exists(_checkpoint())):  # noqa: PTH110 - a script may have no pathlib
        return fit(*args, **kwargs)
    takes, own = inspect.signature(fit), {"ckpt_path": _checkpoint(), "weights_only": False}
    given = takes.bind(*args, **kwargs)
    given.arguments.update({name: value for name, value in own.items() if name in takes.parameters})
    return fit(*given.args, **given.kwargs)


def _is_over(trainer: Any) -> bool:
    has_all_steps = 0 < trainer.max_steps <= trainer.global_step
    is_last_epoch = 0 < (trainer.max_epochs or -1) <= trainer.current_epoch + 1
    return has_all_steps or (is_last_epoch and bool(trainer.is_last_batch))


def _is_in_trial() -> bool:
    """Returns True in a trial; False in a whole training, which is unchanged, or without a tuner."""
    return bool(_wires) and not autotune_wire.is_whole()


def _checkpoint() -> str:
    return os.path.join(os.environ[autotune_wire.WORKDIR], _CHECKPOINT)  # noqa: PTH118


def _callback(package: str) -> Any:
    """Returns a callback derived from the package's own class; the package is imported by then."""
    base = sys.modules[f"{package}.callbacks"].Callback
    return type("AutotuneCallback", (_LightningWatch, base), {"package": package})(_wires[0])


class _LightningWatch:
    """Reports validations, saves checkpoints, and ends the training if the tuner asks for it."""

    package: str

    def __init__(self, wire: autotune_wire.Wire) -> None:
        self._wire = wire
        self._before: Mapping[str, Any] = {}  # metrics logged before a validation
        self._metrics: Mapping[str, Any] = {}  # of the validation that has just ended
        self._save_again_s = 0.0  # when the next checkpoint is worth its time

    def __reduce__(self) -> Any:
        """Pickles the callback for launchers that send the trainer to spawned processes."""
        return _callback, (self.package,)

    def state_dict(self) -> dict[str, Any]:
        return {"told": dict(self._metrics)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._metrics = state["told"]

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Reports the checkpoint's validation again, because the first report may have been lost."""
        self._tell()
        for config in getattr(trainer, "lr_scheduler_configs", ()) if _is_in_trial() else ():
            config.strict = False  # a trial may end an epoch without the validation that a scheduler watches

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        self._before = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        attempt(self._note, trainer, "the scores of a validation are not reported")
        self._tell()
        is_worth_it = _clock_s() >= self._save_again_s
        if trainer.strategy.broadcast(is_worth_it):  # all processes save, or none
            attempt(self._save, trainer, _UNSAVED)

    def on_train_batch_start(self, *args: Any) -> None:
        """Forgets the last validation: later checkpoints do not belong to it."""
        self._metrics = {}

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        """Requests a validation at the end of a trial; if asked to stop, saves a checkpoint and exits."""
        if _is_in_trial() and _is_over(trainer):
            trainer.val_check_batch = 1
        if self._is_to_stop(trainer):
            attempt(self._save, trainer, _UNSAVED)
            raise SystemExit(0)

    def on_validation_batch_end(self, trainer: Any, *args: Any) -> None:
        """Exits if asked to stop: a validation may take long, and a checkpoint in it cannot be resumed."""
        if self._is_to_stop(trainer):
            raise SystemExit(0)

    def _is_to_stop(self, trainer: Any) -> bool:
        """Returns True if asked to stop a training of one process; Lightning itself stops several at once."""
        is_asked = self._wire.is_stopped() or bool(trainer.received_sigterm)
        return is_asked and int(trainer.world_size) == 1

    def _note(self, trainer: Any) -> None:
        logged = trainer.callback_metrics.items()
        new = {name: value for name, value in logged if self._before.get(name) is not value}
        self._metrics = {name: float(value) for name, value in new.items()}

    def _tell(self) -> None:
        if self._metrics and not autotune_wire.rank():
            self._wire.tell({"record": self._metrics})

    def _save(self, trainer: Any) -> None:
        """Saves a checkpoint atomically, because a kill may come at any moment."""
        begun_s, part = _clock_s(), _checkpoint() + ".part"
        trainer.save_checkpoint(part, weights_only=False)
        if not autotune_wire.rank():
            _replace(part, _checkpoint())
        ended_s = _clock_s()
        self._save_again_s = ended_s + (ended_s - begun_s) / _SAVED_SHARE


def _replace(part: str, whole: str) -> None:
    """Replaces a checkpoint; a directory cannot be replaced atomically."""
    if os.path.isdir(whole):  # noqa: PTH112 - a script may have no pathlib
        before = whole + ".before"
        shutil.rmtree(before, ignore_errors=True)
        os.rename(whole, before)  # noqa: PTH104
        os.rename(part, whole)  # noqa: PTH104
        shutil.rmtree(before)
    else:
        os.replace(part, whole)  # noqa: PTH105
