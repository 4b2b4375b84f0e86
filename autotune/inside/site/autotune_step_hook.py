"""Tells the tuner of every step of a PyTorch script that knows nothing of it, and of what its checkpoints
have seen.

PyTorch (2.0 or newer) calls a hook of the process after each step of each optimizer. Wrapped backward passes
and data loaders show what the step has seen; a script that updates its weights by hand is told by its
backward passes. A failure in here is reported once, and the script continues.
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
import autotune_gpu
import autotune_lightning
import autotune_output
import autotune_overrides
import autotune_scores
import autotune_seed
import autotune_tokens
import autotune_transformers
import autotune_wire
from autotune_batches import Seen, Tally, Total, size
from autotune_figures import Figures, trained_parameters
from autotune_flops import Flops
from autotune_imports import After, attempt
from autotune_overrides import Overrides
from autotune_saving import Saving
from autotune_steps import Steps

_LONGEST_MESSAGE = 10_000
_clock_s = time.monotonic  # kept here: a script that replaces the module's clock replaces its own alone


def arm() -> None:
    """From now on, as soon as the script has imported torch, it does what a search asks for.

    Where a tuner listens, its steps and what ends it are reported, too; and, of a trial that hangs, where it
    stands when the tuner asks. Its lines say when they were printed.
    """
    wire, after = autotune_wire.Wire(), After()
    overrides = Overrides(wire)
    after.do("torch", lambda torch: autotune_overrides.attach(torch, overrides))
    begun = Seen(**json.loads(os.environ.get(autotune_wire.BEGUN) or '{"samples": 0}'))
    total = Total(os.environ.get(autotune_wire.UNIT, "samples"), begun)
    if autotune_wire.OVERRIDES in os.environ:  # a command of no framework is left as it is
        autotune_lightning.arm(after, overrides, wire)
        autotune_transformers.attach(after, overrides, wire, total)
    if autotune_wire.SOCKET not in os.environ:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError, KeyError):  # there is none, or it has no file
            autotune_output.stamp_lines(stream, os.environ[autotune_wire.OUTPUT])
    with suppress(AttributeError, OSError, RuntimeError, ValueError):  # no stderr, or one without a file
        faulthandler.register(signal.SIGUSR1)
    sys.excepthook = _telling(sys.excepthook, wire)
    offset = int(os.environ.get(autotune_wire.SEED) or 0)
    after.do("torch", lambda torch: _attach(torch, Teller(torch, wire, total), offset, after))
    if names := os.environ.get(autotune_wire.LOGGED):
        autotune_scores.tell_logged(after, wire, frozenset(json.loads(names)))
    for module in ("random", "numpy.random") if offset else ():
        after.do(module, functools.partial(autotune_seed.add, name="seed", offset=offset))


def _telling(hook: Callable[..., Any], wire: autotune_wire.Wire) -> Callable[..., Any]:
    """What is called with the exception that ends the script: `hook`, after the tuner has been told."""

    def excepthook(kind: Any, error: Any, trace: Any) -> None:
        try:
            module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
            said = {"type": module + kind.__qualname__, "message": str(error)[:_LONGEST_MESSAGE]}
            wire.tell({"error": said})
            autotune_device.tell_if_lost(wire)
        except Exception:  # noqa: BLE001, S110 - an exception's own class can do anything; its end is printed
            pass
        hook(kind, error, trace)

    return excepthook


class Teller:
    """What is known of the running step, and reported when it ends."""

    def __init__(self, torch: Any, wire: autotune_wire.Wire, total: Total) -> None:
        self._torch, self._wire, self._total = torch, wire, total
        self.saving = Saving(total)
        self._step_samples = int(os.environ.get(autotune_wire.STEP_SAMPLES) or 0) or None
        self._tally, self._figures, self._pace = Tally(), Figures(), autotune_gpu.Pace()
        self._steps, self._flops, self._ranks = Steps(), Flops(), autotune_wire.Ranks()
        self._worker_info, self._map_kind = (
            torch.utils.data.get_worker_info,
            torch.utils.data.dataloader._DatasetKind.Map,
        )
        self._is_in_backward = self._has_told = self._is_mute = False
        self._scaler: Any = None
        self._note = ""  # what is doubtful about the steps
        self._wrappers: list[Callable[..., Any]] = []
        self._hidden: dict[str, Callable[..., Any]] = {}  # methods as torch.compile may see them
        self._compiler: Callable[[], Any] = lambda: None  # returns what compiles this thread's calls now
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        """A process forked from one that trains is a loader's worker, or whatever else; it does not tell."""
        self._is_mute |= self._has_told

    def guarded(self, name: str) -> Callable[..., None]:
        """Returns the method `name`; if it fails, it says so, and nothing is reported from then on."""
        method = getattr(self, name)

        def call(*args: Any) -> None:
            if self._is_mute:
                return
            try:
                if self._compiler() is None:
                    method(*args)
                else:
                    self._hidden.get(name, method)(*args)
            except Exception as error:  # noqa: BLE001 - never the script's
                self._is_mute = True
                print(f"autotune: steps are told no more: {type(error).__name__}: {error}", file=sys.stderr)

        return self.beside(call)

    def hide(self, dynamo: Any) -> None:
        """Keeps torch.compile from compiling what is done here within a step that it was given whole.

        That takes a while at each call, and so is done only where something is compiled, if torch tells that.
        """
        for name in ("drew", "fetched", "ended", "begins_backward", "ends_backward", "stepped"):
            self._hidden[name] = dynamo.disable(getattr(self, name))
        skip: Any = getattr(getattr(dynamo, "decorators", None), "skip", None)  # older ones need it less
        frames: Any = sys.modules.get("torch._C._dynamo.eval_frame")
        asked: Any = getattr(frames, "get_eval_frame_callback", None)
        self._compiler = asked if skip and asked else lambda: True
        for wrapper in self._wrappers if skip else ():
            skip(wrapper)

    def beside(self, wrapper: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which from now on takes the place of one of torch's."""
        self._wrappers.append(wrapper)
        return wrapper

    def drew(self, iterator: Any, index: Any) -> None:
        """A loader's iterator has drawn the samples of its next batch."""
        if getattr(iterator, "_autotune_of", None) is not iterator._sampler_iter:  # it begins a new epoch
            iterator._autotune_of, iterator._autotune_drawn = iterator._sampler_iter, deque()
        iterator._autotune_drawn.append(len(index) if isinstance(index, (list, tuple)) else None)

    def fetched(self, iterator: Any, batch: Any) -> None:
        """A loader's iterator gives a batch; None: it has failed."""
        drawn = getattr(iterator, "_autotune_drawn", None)
        usual = drawn.popleft() if drawn else None
        if batch is None or not self._torch.is_grad_enabled():
            return
        is_map = iterator._dataset_kind == self._map_kind
        samples = usual if is_map and usual else size(batch, usual)
        if samples:
            self._tally.fetched(_loader_of(iterator), iterator, samples, autotune_tokens.count(batch))

    def ended(self, iterator: Any) -> None:
        """A loader's iterator has no more to give."""
        self._tally.ended(_loader_of(iterator), iterator)

    def begins_backward(self, loss: Any) -> None:
        """A backward pass begins at `loss`."""
        self.saving.trains()
        self._tally.backward()
        self._figures.note_loss(loss)

    def ends_backward(self) -> None:
        """A backward pass has ended."""
        if self._steps.passed():
            if not self._has_told:
                self._note = "no optimizer is seen: each backward pass counts as a step"
            self._end_step()

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has made a step."""
        if not self._is_no_step(optimizer) and self._steps.stepped(optimizer):
            self._end_step(optimizer)

    def _end_step(self, optimizer: Any = None) -> None:
        """Counts a step and tells it; `optimizer` has made it."""
        rank, of_all = self._ranks()
        seen = self._seen(of_all)
        self._total.add(seen)
        if rank:
            return
        if not self._has_told:
            autotune_device.tell_if_lost(self._wire, optimizer)
        has_settled = self._pace.has_settled()
        at_s, figures = _clock_s(), self._figures.of_step(self._scale, optimizer, has_settled=has_settled)
        if flops := self._flops.stepped():
            figures["flops"] = {kind: counted * of_all for kind, counted in flops.items()}
        is_first = optimizer is not None and not self._has_told
        is_alone = of_all == 1  # of several each may hold a part
        if is_first and is_alone and (trained := trained_parameters(optimizer)):
            figures["trained_parameters"] = trained
        if said := self._note or self._tally.note:
            self._note = self._tally.note = ""
            figures["note"] = said
            print(f"autotune: {said}", file=sys.stderr)
        self._wire.tell_step(at_s, rank, seen.samples, seen.tokens, figures)
        self._has_told = True

    def _seen(self, of_all: int) -> Seen:
        """What the step that has ended has seen, in all processes."""
        own = self._tally.stepped((self._step_samples or 0) // of_all)
        samples, tokens = own.samples and own.samples * of_all, own.tokens and own.tokens * of_all
        return Seen(self._step_samples if samples is None else samples, tokens)

    def _is_no_step(self, optimizer: Any) -> bool:
        """Whether it was recorded only, belongs to a loader's worker, or left the weights as they were.

        A fused optimizer leaves out what overflowed by itself; on a GPU it would have to be waited for.
        """
        overflow = getattr(optimizer, "found_inf", None)
        return (
            autotune_gpu.is_capturing()
            or self._worker_info() is not None
            or (overflow is not None and overflow.device.type == "cpu" and bool(overflow))
        )

    def _scale(self) -> float:
        return float(self._scaler.get_scale()) if self._scaler is not None else 1.0

    def around_backward(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        """torch's backward, which tells when it begins; one within another, a checkpoint's, is part of it."""
        begins, ends = self.guarded("begins_backward"), self.guarded("ends_backward")

        @functools.wraps(backward)
        def told(*args: Any, **kwargs: Any) -> None:
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

        return self.beside(told)

    def around_init(self, init: Callable[..., Any]) -> Callable[..., Any]:
        """Returns an optimizer's `__init__` that tells that it is called."""
        made = self.guarded("made")

        @functools.wraps(init)
        def told(*args: Any, **kwargs: Any) -> None:
            made()
            init(*args, **kwargs)

        return told

    def made(self) -> None:
        """The script makes an optimizer."""
        self._steps.made()

    def around_scaled_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """A gradient scaler's step, in which the loss is known to have been multiplied."""

        @functools.wraps(step)
        def told(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            self._scaler = scaler
            try:
                return step(scaler, *args, **kwargs)
            finally:
                self._scaler = None

        return self.beside(told)


def _attach(torch: Any, teller: Teller, offset: int, after: After) -> None:
    """Wraps what a step is known by, caps the GPU's memory, and moves torch's seed by `offset`."""
    after.do("torch._dynamo", teller.hide)
    stepped = teller.guarded("stepped")
    optimizers = importlib.import_module("torch.optim.optimizer")  # torch.optim hides it
    optimizers.register_optimizer_step_post_hook(lambda optimizer, *_: stepped(optimizer))
    optimizers.Optimizer.__init__ = teller.around_init(optimizers.Optimizer.__init__)
    if autotune_wire.WORKDIR in os.environ:
        optimizers.Optimizer.state_dict = teller.saving.around_state(optimizers.Optimizer.state_dict)
        torch.save = torch.serialization.save = teller.saving.around_save(torch.save)
    torch.autograd.backward = teller.around_backward(torch.autograd.backward)
    scaler = getattr(torch.amp, "grad_scaler", torch.cuda.amp.grad_scaler).GradScaler
    scaler.step = teller.around_scaled_step(scaler.step)
    _count_batches(torch.utils.data.dataloader._BaseDataLoaderIter, teller)
    cap_bytes = int(os.environ.get(autotune_wire.MEMORY_CAP_BYTES) or 0)
    if cap_bytes:
        cap = functools.partial(autotune_gpu.cap, cap_bytes=cap_bytes)
        torch.cuda._lazy_call(lambda: attempt(cap, torch.cuda))  # once the script uses a GPU
    if offset:
        autotune_seed.add(torch, "manual_seed", offset)
        for name in ("manual_seed", "manual_seed_all"):  # many a script calls them, too
            autotune_seed.add(torch.cuda, name, offset)
        torch.random.manual_seed = torch.manual_seed
        torch.manual_seed(0)  # a script that seeds nothing has the same seed every time


def _count_batches(iterator: Any, teller: Teller) -> None:
    begin, draw, give = iterator.__init__, iterator._next_index, iterator.__next__
    drew, fetched, ended = map(teller.guarded, ("drew", "fetched", "ended"))

    @functools.wraps(begin)
    def __init__(self: Any, loader: Any) -> None:  # noqa: N807 - it takes that one's place
        self._autotune_loader = weakref.ref(loader)
        begin(self, loader)

    @functools.wraps(draw)
    def _next_index(self: Any) -> Any:
        index = draw(self)
        drew(self, index)
        return index

    @functools.wraps(give)
    def __next__(self: Any) -> Any:  # noqa: N807 - it takes that one's place
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
    iterator._next_index, iterator.__next__ = map(teller.beside, (_next_index, __next__))


def _loader_of(iterator: Any) -> Any:
    """Returns the loader of an iterator; one that is gone, or not known, is the iterator itself."""
    loader = getattr(iterator, "_autotune_loader", lambda: None)()
    return (
        iterator if loader is None else loader
    )  # one of an iterable data set has no length, and no truth value
