"""What a search asks of Lightning's trainer, under either of its names, and what it learns from it.

Arguments replace the script's own; a callback, which Lightning finds by an entry point, reports what a
validation has found, and saves the checkpoint from which the next `fit` resumes.
"""

from __future__ import annotations

import functools
import inspect
import os
import shutil
import sys
import time
from typing import Any, Callable, Mapping, Sequence  # noqa: UP035 - for Python 3.8

import autotune_wire
from autotune_imports import After, attempt
from autotune_overrides import Overrides

_LIGHTNING, _PYTORCH_LIGHTNING = "lightning.pytorch", "pytorch_lightning"
_CHECKPOINT = "autotune.ckpt"
_UNSAVED = "no checkpoint was saved"
_SAVED_SHARE = 0.05  # of a trial's time, at most, goes into checkpoints that are for a kill alone
_clock_s = time.monotonic  # kept here: a script that replaces the module's clock replaces its own alone
# What a trial has no use for, where a function has built what is trained.
_QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
_wires: list[autotune_wire.Wire] = []  # to the tuner, where there is one
_begun: list[None] = []  # once a fit was


def arm(after: After, overrides: Overrides, wire: autotune_wire.Wire) -> None:
    """From now on trainers take the arguments of the search, and where there is a tuner they are watched."""
    _wires[:] = [wire] if autotune_wire.SOCKET in os.environ else []
    for package in (_LIGHTNING, _PYTORCH_LIGHTNING):
        after.do(f"{package}.trainer.trainer", functools.partial(_attach, overrides=overrides))


def of_lightning() -> list[Any]:
    """What Lightning adds to every trainer's callbacks; nothing without a tuner."""
    return _callbacks(_LIGHTNING)


def of_pytorch_lightning() -> list[Any]:
    """The same for the package of Lightning's older name."""
    return _callbacks(_PYTORCH_LIGHTNING)


def train(built: Sequence[Any], settings: Mapping[str, Any]) -> None:
    """Fits what a function has built: a module, its data, and a trainer where it should not be made here.

    The data are a data module, a loader, or a loader to train and one to validate with.
    """
    module, data, *rest = built
    trainer = rest[0] if rest else _trainer_of(module)(**_arguments(settings))
    trainer.fit(module, *(data if isinstance(data, (tuple, list)) else (data,)))


def _trainer_of(module: Any) -> Any:
    """The trainer of the package that the module's class comes from."""
    names = [cls.__module__ for cls in type(module).__mro__ if cls.__name__ == "LightningModule"]
    found = [package for package in (_LIGHTNING, _PYTORCH_LIGHTNING) if names[0].startswith(package + ".")]
    return sys.modules[found[0]].Trainer


def _arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    quiet = _QUIET if _is_in_trial() else {}
    return {**quiet, **settings.get("trainer", {})}


def _attach(module: Any, overrides: Overrides) -> None:
    trainer = module.Trainer
    trainer.__init__ = _around_init(trainer.__init__, overrides)
    if _wires:
        trainer.fit = _around_fit(trainer.fit)


def _around_init(init: Callable[..., None], overrides: Overrides) -> Callable[..., None]:
    """A trainer's own files go where the trial's are, unless the script says where.

    In a trial it validates nothing before it has trained.
    """
    takes = inspect.signature(init).parameters

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        names = inspect.signature(type(self)).parameters
        given = {**dict(zip(names, args)), **kwargs}  # noqa: B905 - for Python 3.8
        if _wires:
            given["default_root_dir"] = given.get("default_root_dir") or _directory()
        if _is_in_trial():
            given["num_sanity_val_steps"] = 0
        taken = {name: value for name, value in overrides.of("trainer").items() if name in takes}
        init(self, **{**given, **taken})
        overrides.tell("trainer", taken)

    return made


def _around_fit(fit: Callable[..., Any]) -> Callable[..., Any]:
    """The first one resumes from the last checkpoint, wherever the script itself would begin."""
    takes = inspect.signature(fit)

    @functools.wraps(fit)
    def resumed(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_first, _begun[:] = not _begun, [None]
        if not (is_first and os.path.exists(_checkpoint())):  # noqa: PTH110 - a script may have no pathlib
            return fit(self, *args, **kwargs)
        given, own = takes.bind(self, *args, **kwargs), {"ckpt_path": _checkpoint(), "weights_only": False}
        given.arguments.update({name: value for name, value in own.items() if name in takes.parameters})
        return fit(*given.args, **given.kwargs)

    return resumed


def _is_in_trial() -> bool:
    """Rather than in a whole training, which is as its script has it, or without a tuner."""
    return bool(_wires) and not autotune_wire.is_whole()


def _directory() -> str:
    """For what is written in this process: `LightningCLI` refuses a directory that has its config already."""
    return os.path.join(os.environ[autotune_wire.WORKDIR], f"lightning-{os.getpid()}")  # noqa: PTH118


def _checkpoint() -> str:
    return os.path.join(os.environ[autotune_wire.WORKDIR], _CHECKPOINT)  # noqa: PTH118


def _callbacks(package: str) -> list[Any]:
    """A callback of the package's own class, which the trainer has imported that asks for it."""
    if not _wires:
        return []
    base = sys.modules[f"{package}.callbacks"].Callback
    return [type("AutotuneCallback", (_Watch, base), {"package": package})(_wires[0])]


class _Watch:
    """Tells of validations, saves checkpoints, and ends the training when the tuner asks for it."""

    package: str

    def __init__(self, wire: autotune_wire.Wire) -> None:
        self._wire = wire
        self._before: Mapping[str, Any] = {}  # what had been logged before a validation
        self._told: Mapping[str, Any] = {}  # by the validation that has just ended
        self._save_again_s = 0.0  # when another checkpoint is worth its time

    def __reduce__(self) -> Any:
        """A launcher that spawns its processes sends the trainer to them."""
        return _only, (self.package,)

    def state_dict(self) -> dict[str, Any]:
        """Part of the checkpoint."""
        return {"told": dict(self._told)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores its part of a checkpoint that is resumed."""
        self._told = state["told"]

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Reports once more what the checkpoint's validation has found: the first report may be lost."""
        del trainer, module
        self._tell()

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """Remembers what has been logged."""
        del module
        self._before = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """Reports what has been logged since, and saves a checkpoint."""
        del module
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        attempt(self._note, trainer, "what a validation has found is not told")
        self._tell()
        is_worth_it = _clock_s() >= self._save_again_s
        if trainer.strategy.broadcast(is_worth_it):  # all processes save, or none
            attempt(self._save, trainer, _UNSAVED)

    def on_train_batch_start(self, *args: Any) -> None:
        """From here on a checkpoint is not the one of a validation."""
        del args
        self._told = {}

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        """Has a trial validated at its very end; ends the script when it should stop, after a checkpoint."""
        del args
        if _is_in_trial() and _is_over(trainer):
            trainer.val_check_batch = 1
        if self._is_to_stop(trainer):
            attempt(self._save, trainer, _UNSAVED)
            raise SystemExit(0)

    def on_validation_batch_end(self, trainer: Any, *args: Any) -> None:
        """Ends the script when it should stop: a validation may take longer than the time given for that.

        It restarts at the last checkpoint: one from the middle of a validation cannot be resumed.
        """
        del args
        if self._is_to_stop(trainer):
            raise SystemExit(0)

    def _is_to_stop(self, trainer: Any) -> bool:
        """Several processes would have to agree on a batch: they are left to Lightning and to a kill."""
        is_told = self._wire.is_stopped() or bool(trainer.received_sigterm)
        return is_told and int(trainer.world_size) == 1

    def _note(self, trainer: Any) -> None:
        logged = trainer.callback_metrics.items()
        new = {name: value for name, value in logged if self._before.get(name) is not value}
        self._told = {name: float(value) for name, value in new.items()}

    def _tell(self) -> None:
        if self._told and not autotune_wire.rank():
            self._wire.tell({"record": self._told})

    def _save(self, trainer: Any) -> None:
        """Never half a checkpoint: a kill may come at any moment."""
        begun_s, part = _clock_s(), _checkpoint() + ".part"
        trainer.save_checkpoint(part, weights_only=False)
        if not autotune_wire.rank():
            _replace(part, _checkpoint())
        ended_s = _clock_s()
        self._save_again_s = ended_s + (ended_s - begun_s) / _SAVED_SHARE


def _is_over(trainer: Any) -> bool:
    """Whether the batch that has ended is the last one of a training."""
    has_all_steps = 0 < trainer.max_steps <= trainer.global_step
    epochs = trainer.max_epochs or -1
    return has_all_steps or (bool(trainer.is_last_batch) and 0 < epochs <= trainer.current_epoch + 1)


def _replace(part: str, whole: str) -> None:
    """Puts a checkpoint where the last one was; a directory cannot take another one's place at once."""
    if os.path.isdir(whole):  # noqa: PTH112 - a script may have no pathlib
        before = whole + ".before"
        shutil.rmtree(before, ignore_errors=True)
        os.rename(whole, before)  # noqa: PTH104
        os.rename(part, whole)  # noqa: PTH104
        shutil.rmtree(before)
    else:
        os.replace(part, whole)  # noqa: PTH105


def _only(package: str) -> Any:
    return _callbacks(package)[0]
