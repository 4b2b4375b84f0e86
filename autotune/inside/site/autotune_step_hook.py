"""Reports every step of a PyTorch script that knows nothing of the tuner, and notes its checkpoints.

PyTorch (2.0 or newer) calls a hook after each step of each optimizer. Wrapped backward passes and loaders
show what the step trained on. A failure in here is printed once, and the script continues.
"""

from __future__ import annotations

import faulthandler
import functools
import importlib
import json
import os
import signal
import sys
import time
import weakref
from collections import deque
from contextlib import suppress
from typing import Any, Callable  # noqa: UP035 - for Python 3.8

import autotune_device
import autotune_figures
import autotune_lightning
import autotune_output
import autotune_overrides
import autotune_scores
import autotune_transformers
import autotune_wire
from autotune_batches import Seen, Steps, Tally, Total, count_tokens, size
from autotune_imports import After, replace
from autotune_overrides import Overrides
from autotune_saves import Saving

_LONGEST_MESSAGE = 10_000
_clock_s = time.monotonic  # bound here, because a script may patch time.monotonic


def arm(after: After) -> None:
    """Applies a search's settings once the script imports torch; reports its steps if a tuner listens."""
    wire = autotune_wire.Wire()
    overrides = Overrides(wire)
    for attach in (autotune_overrides.attach, autotune_overrides.attach_model):
        after.do("torch", functools.partial(attach, overrides=overrides))
    begun = Seen(**json.loads(os.environ.get(autotune_wire.BEGUN) or '{"samples": 0}'))
    total = Total(os.environ.get(autotune_wire.UNIT, "samples"), begun)
    if autotune_wire.OVERRIDES in os.environ:  # commands without a framework are unchanged
        autotune_lightning.arm(after, overrides, wire)
        autotune_transformers.attach(after, overrides, wire, total)
    if autotune_wire.SOCKET not in os.environ:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError, KeyError):  # no stream, or one without a file
            autotune_output.stamp_lines(stream, os.environ[autotune_wire.OUTPUT])
    with suppress(AttributeError, OSError, RuntimeError, ValueError):  # no stderr, or one without a file
        faulthandler.register(signal.SIGUSR1)  # by which the tuner asks for the stacks of a hanging trial
    sys.excepthook = _telling(sys.excepthook, wire)
    after.do("torch", lambda torch: _attach(torch, Teller(torch, wire, total), after))
    if names := os.environ.get(autotune_wire.LOGGED):
        tell = functools.partial(autotune_scores.tell, wire, frozenset(json.loads(names)))
        autotune_scores.listen(after, tell)


def _telling(hook: Callable[..., Any], wire: autotune_wire.Wire) -> Callable[..., Any]:
    """Returns an excepthook that tells the tuner about the exception before it calls `hook`."""

    def excepthook(kind: Any, error: Any, trace: Any) -> None:
        with suppress(Exception):  # an exception's own class can do anything
            module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
            description = {"type": module + kind.__qualname__, "message": str(error)[:_LONGEST_MESSAGE]}
            wire.tell({"error": description})
            autotune_device.tell_if_lost(wire)
        hook(kind, error, trace)

    return excepthook


class Teller:
    """Collects what is known about the running step, and reports it when the step ends."""

    def __init__(self, torch: Any, wire: autotune_wire.Wire, total: Total) -> None:
        self._torch, self._wire, self._total = torch, wire, total
        self.saving = Saving(total, os.environ.get(autotune_wire.WORKDIR, ""))
        self._step_samples = int(os.environ.get(autotune_wire.STEP_SAMPLES) or 0) or None
        self._tally, self._figures, self._pace = Tally(), autotune_figures.Figures(), autotune_figures.Pace()
        self.steps, self._flops, self._ranks = Steps(), autotune_figures.Flops(), autotune_wire.Ranks()
        self._worker_info = torch.utils.data.get_worker_info
        self._map_kind = torch.utils.data.dataloader._DatasetKind.Map
        self._is_in_backward = self._has_told = self._is_mute = False
        self._scaler: Any = None
        self._note = ""  # a doubt about the steps, for the user
        self._wrappers: list[Callable[..., Any]] = []
        self._hidden: dict[str, Callable[..., Any]] = {}  # methods that torch.compile does not enter
        self._compiler: Callable[[], Any] = lambda: None  # returns the active compiler of this thread
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        """Mutes a fork of a training process, such as a loader worker."""
        self._is_mute |= self._has_told

    def guarded(self, name: str) -> Callable[..., None]:
        """Wraps the method `name`: if it fails, prints the error and reports nothing from then on."""
        method = getattr(self, name)

        def call(*args: Any) -> None:
            if self._is_mute:
                return
            try:
                if self._compiler() is None:
                    method(*args)
                else:
                    self._hidden.get(name, method)(*args)
            except Exception as error:  # noqa: BLE001 - must never end the script
                self._is_mute = True
                print(
                    f"autotune: no more steps are reported: {type(error).__name__}: {error}", file=sys.stderr
                )

        return self.register_wrapper(call)

    def hide(self, dynamo: Any) -> None:
        """Keeps torch.compile from compiling these methods together with a compiled step."""
        for name in ("drew", "fetched", "ended", "begins_backward", "ends_backward", "stepped"):
            self._hidden[name] = dynamo.disable(getattr(self, name))
        skip: Any = getattr(getattr(dynamo, "decorators", None), "skip", None)  # older versions need it less
        frames: Any = sys.modules.get("torch._C._dynamo.eval_frame")
        asked: Any = getattr(frames, "get_eval_frame_callback", None)
        # Hidden methods are slower: used only during compilation, if torch can tell.
        self._compiler = asked if skip and asked else lambda: True
        for wrapper in self._wrappers if skip else ():
            skip(wrapper)

    def register_wrapper(self, wrapper: Callable[..., Any]) -> Callable[..., Any]:
        """Registers a function that replaces one in torch, for `hide`; returns the function."""
        self._wrappers.append(wrapper)
        return wrapper

    def drew(self, iterator: Any, index: Any) -> None:
        if getattr(iterator, "_autotune_of", None) is not iterator._sampler_iter:  # a new epoch
            iterator._autotune_of, iterator._autotune_drawn = iterator._sampler_iter, deque()
        iterator._autotune_drawn.append(len(index) if isinstance(index, (list, tuple)) else None)

    def fetched(self, iterator: Any, batch: Any) -> None:
        """Counts a batch from a loader's iterator; `batch` is None if fetching it failed."""
        drawn = getattr(iterator, "_autotune_drawn", None)
        usual = drawn.popleft() if drawn else None
        if batch is None or not self._torch.is_grad_enabled():
            return
        is_map = iterator._dataset_kind == self._map_kind
        samples = usual if is_map and usual else size(batch, usual)
        if samples:
            self._tally.fetched(_loader_of(iterator), iterator, samples, count_tokens(batch))

    def ended(self, iterator: Any) -> None:
        self._tally.ended(_loader_of(iterator), iterator)

    def begins_backward(self, loss: Any) -> None:
        self.saving.trains()
        self._tally.backward()
        self._figures.note_loss(loss)

    def ends_backward(self) -> None:
        if self.steps.passed():
            if not self._has_told:
                self._note = "no optimizer was seen, so each backward pass counts as a step"
            self._end_step()

    def stepped(self, optimizer: Any) -> None:
        """Ends the training's step, unless this call is captured, in a loader worker, or skipped."""
        if autotune_figures.is_capturing() or self._worker_info() is not None:
            return
        overflow = getattr(optimizer, "found_inf", None)
        # A fused optimizer skips a step that overflowed; on a GPU, looking would mean waiting.
        is_skipped = overflow is not None and overflow.device.type == "cpu" and bool(overflow)
        if not is_skipped and self.steps.stepped(optimizer):
            self._end_step(optimizer)

    def _end_step(self, optimizer: Any = None) -> None:
        """Counts and reports a step of `optimizer`, or of a backward pass alone if that is None."""
        rank, processes = self._ranks()
        own = self._tally.stepped((self._step_samples or 0) // processes)
        samples = self._step_samples if own.samples is None else own.samples * processes
        seen = Seen(samples, own.tokens and own.tokens * processes)
        self._total.add(seen)
        if rank:
            return
        if not self._has_told:
            autotune_device.tell_if_lost(self._wire, optimizer)
        has_settled = self._pace.has_settled()
        at_s = _clock_s()
        figures = self._figures.step_figures(self._scaler, optimizer, has_settled=has_settled)
        if flops := self._flops.stepped():
            figures["step_flops"] = {kind: counted * processes for kind, counted in flops.items()}
        is_first = optimizer is not None and not self._has_told
        is_alone = processes == 1  # with several, each may hold a part
        if is_first and is_alone and (trained := autotune_figures.trained_parameters(optimizer)):
            figures["trained_parameters"] = trained
        if note := self._note or self._tally.note:
            self._note = self._tally.note = ""
            figures["note"] = note
            print(f"autotune: {note}", file=sys.stderr)
        self._wire.tell_step(at_s, seen.samples, seen.tokens, figures)
        self._has_told = True

    def around_backward(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps torch's backward; a nested call, by activation checkpointing, is part of the outer one."""
        begins, ends = self.guarded("begins_backward"), self.guarded("ends_backward")

        @functools.wraps(backward)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            if self._is_in_backward:
                backward(*args, **kwargs)
                return
            begins(args[0] if args else kwargs.get("tensors"))
            self._is_in_backward = True
            try:
                backward(*args, **kwargs)
            finally:
                self._is_in_backward = False
            ends()

        return self.register_wrapper(wrapper)

    def around_scaled_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a gradient scaler's step, during which the scale of the loss is known."""

        @functools.wraps(step)
        def wrapper(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            self._scaler = scaler
            try:
                return step(scaler, *args, **kwargs)
            finally:
                self._scaler = None

        return self.register_wrapper(wrapper)


def _attach(torch: Any, teller: Teller, after: After) -> None:
    after.do("torch._dynamo", teller.hide)
    stepped = teller.guarded("stepped")
    optimizers = importlib.import_module("torch.optim.optimizer")  # shadowed in torch.optim
    optimizers.register_optimizer_step_post_hook(lambda optimizer, *_: stepped(optimizer))
    replace(optimizers.Optimizer, "__init__", teller.steps.make_optimizer)
    if autotune_wire.WORKDIR in os.environ:
        replace(optimizers.Optimizer, "state_dict", teller.saving.take_state)
        replace(torch, "save", teller.saving.save)
        torch.serialization.save = torch.save
    torch.autograd.backward = teller.around_backward(torch.autograd.backward)
    scaler = getattr(torch.amp, "grad_scaler", torch.cuda.amp.grad_scaler).GradScaler
    scaler.step = teller.around_scaled_step(scaler.step)
    _count_batches(torch.utils.data.dataloader._BaseDataLoaderIter, teller)
    cap_bytes = int(os.environ.get(autotune_wire.MEMORY_CAP_BYTES) or 0)
    if cap_bytes:
        autotune_device.attach_cap(torch, optimizers.Optimizer, cap_bytes)


def _count_batches(iterator: Any, teller: Teller) -> None:
    begin, draw, give = iterator.__init__, iterator._next_index, iterator.__next__
    drew, fetched, ended = map(teller.guarded, ("drew", "fetched", "ended"))

    @functools.wraps(begin)
    def __init__(self: Any, loader: Any) -> None:  # noqa: N807 - replaces the original
        self._autotune_loader = weakref.ref(loader)
        begin(self, loader)

    @functools.wraps(draw)
    def _next_index(self: Any) -> Any:
        index = draw(self)
        drew(self, index)
        return index

    @functools.wraps(give)
    def __next__(self: Any) -> Any:  # noqa: N807 - replaces the original
        try:
            batch = give(self)
        except StopIteration:
            ended(self)
            raise
        except Exception:
            fetched(self, None)
            raise
        fetched(self, batch)
        return batch

    iterator.__init__ = __init__
    iterator._next_index, iterator.__next__ = map(teller.register_wrapper, (_next_index, __next__))


def _loader_of(iterator: Any) -> Any:
    """Returns the loader of an iterator, or the iterator itself if that is gone or unknown."""
    loader = getattr(iterator, "_autotune_loader", lambda: None)()
    return iterator if loader is None else loader  # `or` would ask for a length, which it may not have
