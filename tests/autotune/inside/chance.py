"""Random trainings, each with its own ledger: the samples of every step.

Features are drawn from those of public scripts: several optimizers or none, steps within backward, losses of
several batches, accumulation, prefetching loaders, evaluations that compute gradients, gradient scalers,
several processes.
"""

import json
import os
import random
import sys
import tempfile
from dataclasses import dataclass
from itertools import islice

import torch
from torch import distributed
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

WIDTH = 4


@dataclass(frozen=True)
class Training:
    """The features of a training."""

    updates: str  # one, two, fused, many, by_hand, twice
    source: str  # of batches: map, workers, iterable, endless, semi, none
    batches: int  # whose losses are summed for a pass
    passes: int  # backward passes per batch
    accumulation: int
    fetch: str  # plain, ahead, accumulated
    evaluation: str  # none, no_grad, grad, looked
    scaler: str  # none, plain, overflows
    batch: int
    steps: int
    processes: int

    @classmethod
    def drawn(cls, seed):
        draw = random.Random(seed)
        updates = draw.choice(["one", "one", "one", "two", "fused", "many", "by_hand", "twice"])
        sources = ["map", "map", "workers", "iterable", "endless", "semi"]
        # Without a loader, steps count the samples of the settings.
        source = draw.choice(sources if updates == "twice" else [*sources, "none"])
        is_plain = updates == "one"
        scalers = ["none", "none", "plain", "plain" if source == "none" else "overflows"]
        return cls(
            updates=updates,
            source=source,
            batches=draw.choice([1, 1, 2, 3]) if updates != "by_hand" and source != "none" else 1,
            passes=draw.choice([1, 1, 2]) if updates in {"one", "many"} else 1,
            accumulation=draw.choice([1, 1, 2, 4]) if is_plain else 1,
            fetch=draw.choice(["plain", "plain", "ahead", "accumulated"]) if is_plain else "plain",
            evaluation=draw.choice(["none", "no_grad", "grad", "looked"]),
            scaler=draw.choice(scalers) if is_plain else "none",
            batch=draw.choice([2, 4, 8]),
            steps=draw.randint(14, 40),
            processes=draw.choice([1] * 9 + [2]) if updates == "one" else 1,
        )

    @property
    def effective_batch(self):
        """The samples per step according to a search's settings."""
        return self.batch * self.batches * self.accumulation * self.processes


class Rows(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter(torch.randn(self.count, WIDTH))


def loader_of(training, rows, batch):
    if training.source == "iterable":
        return DataLoader(Rows(rows), batch)
    workers = 1 if training.source == "workers" else 0
    return DataLoader(TensorDataset(torch.randn(rows, WIDTH)), batch, shuffle=True, num_workers=workers)


def tensor_of(batch):
    return batch[0] if isinstance(batch, list) else batch


def batches_of(training):
    """Yields the batches of all epochs; with two loaders, unlabelled data with each labelled batch."""
    wanted = training.steps * training.batches * training.accumulation
    if training.source == "none":
        for _ in range(wanted):
            yield torch.randn(training.batch, WIDTH)
        return
    rows = training.batch * 3 * training.batches * training.accumulation
    if training.source not in {"endless", "semi"}:
        rows += training.batch // 2  # the last batch of an epoch is smaller
    loader = loader_of(training, rows, training.batch)
    if training.evaluation == "looked":
        print(tensor_of(next(iter(loader))).shape, file=sys.stderr)
    unlabelled = (
        DataLoader(torch.randn(10**4, WIDTH), 3 * training.batch) if training.source == "semi" else None
    )
    while True:
        others = iter(unlabelled) if unlabelled else None
        for batch in loader:
            if others:
                next(others)
            yield tensor_of(batch)
        evaluate(training)


def ahead(batches):
    """Fetches one batch ahead, like Accelerate."""
    batches = iter(batches)
    held = next(batches)
    for batch in batches:
        yield held
        held = batch
    yield held


def accumulated(batches, count):
    """Fetches all batches of a step at once, like the Trainer of Transformers."""
    while group := list(islice(batches, count)):
        yield from group


def evaluate(training):
    batches = DataLoader(torch.randn(20, WIDTH), 5)
    if training.evaluation == "no_grad":
        with torch.no_grad():
            for x in batches:
                NET(x)
    elif training.evaluation == "grad":
        for x in batches:
            NET(x).mean()


NET = torch.nn.Sequential(torch.nn.Linear(WIDTH, 3), torch.nn.Linear(3, 1))


def losses(training, batches):
    """Returns the losses of the next pass, and its samples; nothing at the end."""
    group = list(islice(batches, training.batches))
    return [(NET(x) ** 2).mean() for x in group], sum(map(len, group))


class Updates:
    """The updates of weights; `ledger` has the samples of every step."""

    def __init__(self, training):
        self.training, self.ledger, self.held = training, [], 0
        parameters = list(NET.parameters())
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0) if training.scaler != "none" else None
        self.optimizers = []
        if training.updates in {"one", "twice"}:
            kind = torch.optim.AdamW if training.batch > 2 else torch.optim.SGD
            self.optimizers = [kind(parameters, lr=1e-3)]
        elif training.updates == "two":
            self.optimizers = [torch.optim.Adam(part.parameters()) for part in NET]
        elif training.updates == "many":
            weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(130)]
            for weight in weights:
                weight.grad = torch.zeros(1)
            self.optimizers = [torch.optim.SGD([one], lr=1e-3) for one in (*parameters, *weights)]
        elif training.updates == "fused":
            for one in parameters:
                optimizer = torch.optim.SGD([one], lr=1e-3)
                one.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: self.fused(optimizer))

    def fused(self, optimizer):
        optimizer.step()
        optimizer.zero_grad()

    def backward(self, loss, *, retain=False):
        (self.scaler.scale(loss) if self.scaler else loss).backward(retain_graph=retain)

    def step(self, samples):
        self.held += samples
        if self.training.updates == "by_hand":
            for one in NET.parameters():
                one.data.add_(one.grad, alpha=-1e-3)
                one.grad = None
        for optimizer in self.optimizers:
            before = self.scaler.get_scale() if self.scaler else 0.0
            (self.scaler.step if self.scaler else type(optimizer).step)(optimizer)
            if self.scaler:
                self.scaler.update()
            optimizer.zero_grad()
            if self.scaler and self.scaler.get_scale() < before:
                return  # the scaler has skipped the step
        self.ledger.append(self.held)
        self.held = 0


def run(training):
    """Trains, and returns the ledger."""
    updates, batches = Updates(training), batches_of(training)
    evaluate(training)
    if training.fetch == "ahead":
        batches = ahead(batches)
    elif training.fetch == "accumulated":
        batches = accumulated(batches, training.accumulation * training.batches)
    overflow = training.steps // 2 if training.scaler == "overflows" else -1
    for step in range(training.steps):
        samples = 0
        for _ in range(training.accumulation):
            found, seen = losses(training, batches)
            loss = sum(found) * (float("inf") if step == overflow else 1.0)
            for left in reversed(range(training.passes)):
                updates.backward(loss, retain=left > 0)
            samples += seen
        updates.step(samples * training.processes)
        if training.updates == "twice":
            updates.backward(sum((NET(torch.randn(2, WIDTH)) ** 2).mean() for _ in range(2)))
            updates.step(0)
    return updates.ledger


def tell(seed):
    """Runs the training of a seed in as many processes as it has, and prints the ledger of the first one."""
    training = Training.drawn(int(seed))
    torch.manual_seed(int(seed))
    if training.processes == 2:
        place = tempfile.mktemp()
        child = os.fork()
        os.environ.update(RANK=str(int(not child)), WORLD_SIZE="2")
        distributed.init_process_group(
            "gloo", init_method=f"file://{place}", rank=int(not child), world_size=2
        )
        try:
            ledger = run(training)
            distributed.barrier()
        finally:
            distributed.destroy_process_group()
            if not child:
                os._exit(0)
        os.waitpid(child, 0)
    else:
        ledger = run(training)
    print(json.dumps(ledger))
