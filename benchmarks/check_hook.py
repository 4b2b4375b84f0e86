"""Is the speed that the step hook tells the script's own? Small trainings on the CPU, each with both clocks.

    python benchmarks/check_hook.py [--steps 400] [--pairs 5]

Each training stamps its steps itself and knows nothing of the hook, which tells of the same steps. Prints for
each kind of loop the samples per second by both, their ratio, and what the hook takes of a step in
microseconds: the CPU time of a step with it less that without it, each the least of all runs, because what
else the machine does only adds to it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch.utils.data import DataLoader, TensorDataset

from autotune.inside.inbox import SITE, Inbox

_WARM_UP = 30  # steps: the first ones compile, allocate and import
_BATCH = 32
_BLOCK = 20  # steps whose CPU time is taken together


class Read(NamedTuple):
    """What a training and the hook say: samples per second, and the least CPU seconds of a step."""

    own_per_s: float
    told_per_s: float | None
    step_cpu_s: float


class Clock:
    """A training's own: the samples so far and the time after each of its steps."""

    def __init__(self) -> None:
        self._samples = 0
        self._stamps: list[tuple[int, float, float]] = []

    def step(self, samples: int) -> None:
        self._samples += samples
        self._stamps.append((self._samples, time.perf_counter(), time.process_time()))

    def say(self) -> None:
        (first, begun_s, _), (last, end_s, _) = self._stamps[_WARM_UP], self._stamps[-1]
        blocks = [cpu_s for _, _, cpu_s in self._stamps[_WARM_UP::_BLOCK]]
        least_s = min(end - begin for begin, end in pairwise(blocks)) / _BLOCK
        print(json.dumps({"per_s": (last - first) / (end_s - begun_s), "step_cpu_s": least_s}))


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


def run(kind: str, steps: int, *, hooked: bool) -> Read:
    """A training of a kind in a process of its own, with the hook or without it."""
    with Inbox() as inbox:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        if hooked:
            path = os.pathsep.join([str(SITE), os.environ.get("PYTHONPATH", "")])
            environment |= inbox.environment() | {"PYTHONPATH": path}
        command = [sys.executable, __file__, "--steps", str(steps), "--run", kind]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        inbox.finish()
        own = json.loads(done.stdout)
        return Read(own["per_s"], _told(inbox) if hooked else None, own["step_cpu_s"])


def _told(inbox: Inbox) -> float:
    """Samples per second of the steps after the warm-up, by the stamps of the hook."""
    messages = list(iter(lambda: inbox.get(0), None))
    steps = [(message.at_s, message.step) for message in messages if message and message.step]
    samples = sum(_BATCH if step.samples is None else step.samples for _, step in steps[_WARM_UP + 1 :])
    return samples / (steps[-1][0] - steps[_WARM_UP][0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--run", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        torch.set_num_threads(1)
        KINDS[options.run](options.steps)
        return
    print(f"{'':>16}{'own /s':>10}{'hook /s':>10}{'ratio':>8}{'worst':>8}{'hook us':>9}")
    for kind in KINDS:
        pairs = [
            (run(kind, options.steps, hooked=True), run(kind, options.steps, hooked=False))
            for _ in range(options.pairs)
        ]
        ratios = [(hooked.told_per_s or 0.0) / hooked.own_per_s for hooked, _ in pairs]
        middle = sorted(pairs, key=lambda pair: pair[0].own_per_s)[len(pairs) // 2][0]
        cost_s = min(hooked.step_cpu_s for hooked, _ in pairs) - min(bare.step_cpu_s for _, bare in pairs)
        worst = max(ratios, key=lambda ratio: abs(ratio - 1))
        print(
            f"{kind:>16}{middle.own_per_s:>10.0f}{middle.told_per_s or 0.0:>10.0f}"
            f"{statistics.median(ratios):>8.4f}{worst:>8.4f}{1e6 * cost_s:>9.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
