"""Checks the step hook's speed against the script's own clock, for small trainings on the CPU.

    python benchmarks/check_hook.py [--steps 400] [--runs 5]

Each training timestamps its steps itself, unaware of the hook, which reports the same steps. Prints per kind
of loop the samples per second by both clocks in the median of `--runs` runs, the median ratio, and the worst.
Finally the hook's cost per step: the CPU time of a step of one weight with and without it, each the minimum
of many blocks of steps, because other load only adds to it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch.utils.data import DataLoader, TensorDataset

from autotune.inside.inbox import SITE, Inbox
from autotune.inside.messages import Step

_WARM_UP = 30  # steps: the first ones compile, allocate and import
_BATCH = 32
_BLOCKS, _BLOCK = 50, 100  # blocks, and steps per block whose CPU time is summed
_ONE_WEIGHT = "one weight"


class Read(NamedTuple):
    """Samples per second by the training's own clock and by the hook."""

    own_per_s: float
    told_per_s: float

    @property
    def ratio(self) -> float:
        return self.told_per_s / self.own_per_s


class Clock:
    """A training's own clock: the samples so far, and the time after each step."""

    def __init__(self) -> None:
        self._samples = 0
        self._stamps: list[tuple[int, float]] = []

    def step(self, samples: int) -> None:
        self._samples += samples
        self._stamps.append((self._samples, time.perf_counter()))

    def say(self) -> None:
        (first, begun_s), (last, end_s) = self._stamps[_WARM_UP], self._stamps[-1]
        print((last - first) / (end_s - begun_s))


def _net() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))


def _batches(count: int) -> Iterator[torch.Tensor]:
    for (batch,) in DataLoader(TensorDataset(torch.randn(_BATCH * count, 256)), _BATCH):
        yield batch


def _drawn(count: int) -> Iterator[torch.Tensor]:
    for _ in range(count):
        yield torch.randn(_BATCH, 256)


def _plain(
    steps: int, batches: Callable[[int], Iterator[torch.Tensor]] = _batches, *, compiled: bool = False
) -> None:
    net, clock = _net(), Clock()
    optimizer = torch.optim.Adam(net.parameters())
    forward = torch.compile(net) if compiled else net
    for batch in batches(steps):
        forward(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        clock.step(len(batch))
    clock.say()


def _accumulation(steps: int) -> None:
    net, clock = _net(), Clock()
    optimizer = torch.optim.Adam(net.parameters())
    for number, batch in enumerate(_batches(4 * steps), 1):
        (net(batch).square().mean() / 4).backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
            clock.step(4 * len(batch))
    clock.say()


def _scaler(steps: int) -> None:
    net, clock, scaler = _net(), Clock(), torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = torch.optim.Adam(net.parameters())
    for batch in _batches(steps):
        scaler.scale(net(batch).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        clock.step(len(batch))
    clock.say()


def _two_optimizers(steps: int) -> None:
    first, second, clock = _net(), _net(), Clock()
    optimizers = [torch.optim.Adam(net.parameters()) for net in (first, second)]
    for batch in _batches(steps):
        for net, optimizer in zip((first, second), optimizers, strict=True):
            net(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        clock.step(len(batch))
    clock.say()


KINDS: dict[str, Callable[[int], None]] = {
    "DataLoader": _plain,
    "no DataLoader": lambda steps: _plain(steps, _drawn),
    "accumulation": _accumulation,
    "GradScaler": _scaler,
    "two optimizers": _two_optimizers,
    "torch.compile": lambda steps: _plain(steps, compiled=True),
}


def _one_weight() -> None:
    """Prints the CPU microseconds of a step of an optimizer with a single weight."""
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.zeros(1)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def block() -> float:
        begun_s = time.process_time()
        for _ in range(_BLOCK):
            optimizer.step()
        return (time.process_time() - begun_s) / _BLOCK

    print(1e6 * min(block() for _ in range(_BLOCKS)))


def _printed_number(kind: str, steps: int, inbox: Inbox | None) -> float:
    """Returns the number that a training prints in its own process, with the hook if there is an inbox."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if inbox is not None:
        path = os.pathsep.join([str(SITE), os.environ.get("PYTHONPATH", "")])
        environment |= inbox.environment() | {"PYTHONPATH": path}
    command = [sys.executable, __file__, "--steps", str(steps), "--run", kind]
    return float(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)


def read(kind: str, steps: int) -> Read:
    """Runs a training of this kind with both clocks."""
    with Inbox() as inbox:
        own_per_s = _printed_number(kind, steps, inbox)
        inbox.finish()
        return Read(own_per_s, _hook_rate(inbox))


def _hook_rate(inbox: Inbox) -> float:
    """Returns the samples per second after the warm-up, by the hook's timestamps."""
    messages = [message for message in iter(lambda: inbox.get(0), None) if message]
    steps = [(at_s, content) for at_s, content, *_ in messages if isinstance(content, Step)]
    samples = sum(_BATCH if step.samples is None else step.samples for _, step in steps[_WARM_UP + 1 :])
    return samples / (steps[-1][0] - steps[_WARM_UP][0])


def compare(steps: int, runs: int) -> None:
    print(f"{'':>16}{'own /s':>10}{'hook /s':>10}{'ratio':>9}{'worst':>9}")
    for kind in KINDS:
        rates = sorted(read(kind, steps) for _ in range(runs))
        own_per_s, told_per_s = rates[runs // 2]
        ratio = statistics.median(one.ratio for one in rates)
        worst = max((one.ratio for one in rates), key=lambda ratio: abs(ratio - 1))
        print(f"{kind:>16}{own_per_s:>10.0f}{told_per_s:>10.0f}{ratio:>9.4f}{worst:>9.4f}", flush=True)
    with Inbox() as inbox:
        hooked_us, bare_us = _printed_number(_ONE_WEIGHT, 0, inbox), _printed_number(_ONE_WEIGHT, 0, None)
    print(f"a step of one weight: {hooked_us:.0f} us of CPU time with the hook, {bare_us:.0f} without")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--run", choices=[*KINDS, _ONE_WEIGHT], help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.run is None:
        compare(options.steps, options.runs)
    elif options.run == _ONE_WEIGHT:
        _one_weight()
    else:
        KINDS[options.run](options.steps)


if __name__ == "__main__":
    main()
