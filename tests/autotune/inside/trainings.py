"""Small PyTorch trainings without knowledge of the tuner. Each prints its steps' samples as JSON.

They run in their own processes, with the hook armed.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

NET = torch.nn.Linear(4, 1)


def loss_of(x, y):
    return ((NET(x) - y) ** 2).mean()


def data(size):
    return TensorDataset(torch.randn(size, 4), torch.randn(size, 1))


def train(batches, optimizer=None, *, xy=lambda batch: batch):
    """Trains on batches, one per step; returns their sizes."""
    optimizer = optimizer or torch.optim.SGD(NET.parameters(), lr=0.01)
    seen = []
    for batch in batches:
        x, y = xy(batch)
        optimizer.zero_grad()
        loss_of(x, y).backward()
        optimizer.step()
        seen.append(len(x))
    return seen


def loader():
    """Evaluates after each epoch, and once in the middle with unused gradients."""
    batches, evaluation = DataLoader(data(22), 8, shuffle=True), DataLoader(data(9), 3)
    optimizer, seen = torch.optim.SGD(NET.parameters(), lr=0.01), []
    for _ in range(2):
        for batch in batches:
            seen += train([batch], optimizer)
            for x, y in evaluation:
                loss_of(x, y)
        with torch.no_grad():
            for x, y in evaluation:
                loss_of(x, y)
    return seen


def workers():
    batches = DataLoader(data(22), 8, num_workers=2, persistent_workers=True)
    optimizer = torch.optim.SGD(NET.parameters(), lr=0.01)
    return [*train(batches, optimizer), *train(batches, optimizer)]


def accumulation():
    optimizer, seen = torch.optim.SGD(NET.parameters(), lr=0.01), []
    held = 0
    for number, (x, y) in enumerate(DataLoader(data(38), 4), 1):
        (loss_of(x, y) / 3).backward()
        held += len(x)
        if number % 3 == 0 or number == 10:
            optimizer.step()
            optimizer.zero_grad()
            seen.append(held)
            held = 0
    return seen


def zero():
    """Steps once per group of parameters, like DeepSpeed's ZeRO."""
    sys.modules["deepspeed"] = SimpleNamespace()
    optimizer, seen = torch.optim.SGD(NET.parameters(), lr=0.01), []
    for x, y in DataLoader(data(38), 4):
        loss_of(x, y).backward()
        for _ in range(3):
            optimizer.step()
        seen.append(len(x))
    return seen


def fetched_ahead():
    """Fetches all batches of a step before its first backward pass, like the Trainer of Transformers."""
    optimizer, batches, seen = torch.optim.SGD(NET.parameters(), lr=0.01), iter(DataLoader(data(23), 4)), []
    for count in (3, 3):
        step = [next(batches) for _ in range(count)]
        for x, y in step:
            loss_of(x, y).backward()
        optimizer.step()
        seen.append(sum(len(x) for x, _ in step))
    return seen


def an_iterator_a_batch():
    batches = DataLoader(data(8), 4)
    return train(next(iter(batches)) for _ in range(3))


def scaler():
    """One step overflows and is skipped by the scaler; its batch counts towards the next step."""
    optimizer, seen, held = torch.optim.SGD(NET.parameters(), lr=0.01), [], 0
    scaling = torch.amp.GradScaler("cpu", init_scale=8.0)
    for number, (x, y) in enumerate(DataLoader(data(20), 4)):
        optimizer.zero_grad()
        scaling.scale(loss_of(x * float("inf") if number == 2 else x, y)).backward()
        scaling.step(optimizer)
        scaling.update()
        held += len(x)
        if number != 2:
            seen.append(held)
            held = 0
    return seen


def diverging():
    """Trains for a second; the loss soon becomes NaN."""
    optimizer, seen = torch.optim.SGD(NET.parameters(), lr=0.01), []
    for number in range(180):
        x = torch.full((1, 4), 1.0 if number < 25 else float("nan"))
        seen += train([(x, torch.ones(1, 1))], optimizer)
        time.sleep(0.005)
    return seen


def two_optimizers():
    """Trains like a GAN: three backward passes and two steps per batch."""
    other = torch.nn.Linear(4, 1)
    first, second = (torch.optim.Adam(one.parameters()) for one in (other, NET))
    seen = []
    for x, y in DataLoader(data(11), 4):
        other(x).mean().backward()
        (other(x) + 1).mean().backward()
        first.step()
        loss_of(x, y).backward()
        second.step()
        seen.append(len(x))
    return seen


def another_optimizer():
    """Stops using the first optimizer: another one is then counted, with all its past steps.

    A further optimizer that steps after the same passes is not counted, however often it steps.
    """
    first, second = (torch.optim.SGD(NET.parameters(), lr=0.01) for _ in range(2))
    batches = iter(DataLoader(data(208), 2))
    seen = train([next(batches), next(batches)], first)
    seen += [sum(train([next(batches) for _ in range(21)], second)), *train(batches, second)]
    for x, y in DataLoader(data(16), 8):
        loss_of(x, y).backward()
        for optimizer in (*[first] * 150, second):
            optimizer.step()
        seen.append(len(x))
    return seen


def fused():
    """Steps many optimizers, one for each parameter, within the backward pass."""
    layers = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(80)))
    for parameter in layers.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.01)
        parameter.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: optimizer.step())
    seen = []
    for x, _ in DataLoader(data(38), 4):
        layers(x).mean().backward()
        seen.append(len(x))
    return seen


def by_hand():
    """Updates its weights without an optimizer; the hook holds the first passes back in case one comes."""
    seen = []
    for x, y in DataLoader(data(46), 4):
        loss_of(x, y).backward()
        for parameter in NET.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.01)
            parameter.grad = None
        seen.append(len(x))
    return [sum(seen[:10]), *seen[10:]]


def without_backward():
    """Computes gradients with `torch.func`."""
    optimizer, weights = torch.optim.SGD(NET.parameters(), lr=0.01), dict(NET.named_parameters())
    seen = []
    for x, y in DataLoader(data(22), 4):
        loss = torch.func.grad(lambda w, x=x, y=y: ((torch.func.functional_call(NET, w, x) - y) ** 2).mean())
        for name, gradient in loss(dict(weights)).items():
            weights[name].grad = gradient
        optimizer.step()
        seen.append(len(x))
    return [0, 0, sum(seen[:3]), *seen[3:]]


def twice_a_batch():
    optimizer, seen = torch.optim.SGD(NET.parameters(), lr=0.01), []
    for batch in DataLoader(data(22), 4):
        train([batch, batch], optimizer)
        seen += [len(batch[0]), 0]
    return seen


def three_at_once():
    """Sums the losses of three batches per pass, which the hook recognises from the third step on."""
    optimizer, batches, seen = torch.optim.SGD(NET.parameters(), lr=0.01), iter(DataLoader(data(60), 4)), []
    for _ in range(5):
        group = [next(batches) for _ in range(3)]
        sum(loss_of(x, y) for x, y in group).backward()
        optimizer.step()
        seen.append(12)
    return [4, 4, sum(seen[:3]) - 8, *seen[3:]]


def labelled_and_not():
    """Draws from two loaders for every step; only labelled samples count, as in the settings."""
    optimizer, unlabelled = torch.optim.SGD(NET.parameters(), lr=0.01), iter(DataLoader(data(96), 12))
    return train((next(unlabelled) and batch for batch in DataLoader(data(32), 4)), optimizer)


def saved_in_many_ways():
    """Returns the paths of checkpoints with the samples behind each, None if they cannot be known."""
    import io
    import shutil
    import threading
    from pathlib import Path

    optimizer, batches = torch.optim.Adam(NET.parameters()), iter(DataLoader(data(80), 4))
    place = Path(os.environ["AUTOTUNE_WORKDIR"])
    known = {}

    def step(count=1):
        train([next(batches) for _ in range(count)], optimizer)

    def state():
        return {"net": NET.state_dict(), "optimizer": optimizer.state_dict()}

    def later(saved, name):
        step(2)
        thread = threading.Thread(target=torch.save, args=(saved, place / name))
        thread.start()
        thread.join()

    step()
    torch.save(state(), place / "last.pt")
    known["last.pt"] = 4
    step()
    torch.save(state(), place / "part")
    shutil.copyfile(place / "part", place / "copied.pt")
    os.utime(place / "copied.pt", (1, 1))
    known["copied.pt"] = 8
    (place / "part").unlink()
    step()
    buffer = io.BytesIO()
    torch.save(state(), buffer)
    step()
    (place / "written.pt").write_bytes(buffer.getvalue())
    known["written.pt"] = 12
    with (place / "opened.pt").open("wb") as file:
        torch.save(state(), file)
    known["opened.pt"] = 16
    later({"net": {}, "optimizer": optimizer.state_dict(), "n": 1}, "thread.pt")
    known["thread.pt"] = 16
    later({"net": NET.state_dict()}, "no-snapshot.pt")
    known["no-snapshot.pt"] = None
    first, second = optimizer.state_dict(), optimizer.state_dict()
    later([first, second], "two-snapshots.pt")
    known["two-snapshots.pt"] = None
    (place / "other.pt").write_bytes(b"by something else than torch.save")
    known["other.pt"] = None
    if not (pid := os.fork()):
        torch.save({"from": "a child"}, place / "child.pt")
        os._exit(0)
    os.waitpid(pid, 0)
    known["child.pt"] = None
    torch.save(state(), "/dev/null")
    return known


def compiled():
    """Compiles the whole step including the optimizer's; graph breaks run eagerly."""
    optimizer = torch.optim.SGD(NET.parameters(), lr=0.01)

    @torch.compile(backend="eager")
    def step(x, y):
        loss_of(x, y).backward()
        optimizer.step()
        optimizer.zero_grad()

    seen = []
    for x, y in DataLoader(data(22), 8):
        step(x, y)
        seen.append(len(x))
    return seen


def compiled_late():
    """Compiles its model for the second step, whose operations are counted; returns the number of graphs."""
    graphs = []
    net = torch.compile(NET, backend=lambda graph, _: graphs.append(graph) or graph)
    optimizer = torch.optim.SGD(NET.parameters(), lr=0.01)
    for number, (x, y) in enumerate(DataLoader(data(24), 8)):
        ((net if number else NET)(x) - y).square().mean().backward()
        optimizer.step()
    return len(graphs)


class Endless(IterableDataset):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


def iterable():
    rows = [(torch.randn(4), torch.randn(1)) for _ in range(10)]
    return train(DataLoader(Endless(rows), 4))


def batched_by_the_dataset():
    batches = [{"x": torch.randn(size, 4), "y": torch.randn(size, 1)} for size in (5, 3)]
    loader = DataLoader(Endless(batches), batch_size=None)
    return train(loader, xy=lambda batch: (batch["x"], batch["y"]))


class Rows(Dataset):
    def __len__(self):
        return 7

    def __getitem__(self, index):
        return {"id": str(index), "image": torch.randn(4), "target": torch.randn(1)}


def lists_of_samples():
    """Batches are lists: nothing in them has the batch's length but the list itself."""
    loader = DataLoader(Rows(), 3, collate_fn=list)
    fields = ("image", "target")
    return train(loader, xy=lambda batch: [torch.stack([row[name] for row in batch]) for name in fields])


def backward_of_several():
    optimizer, seen = torch.optim.SGD(NET.parameters(), lr=0.01), []
    for x, y in DataLoader(data(7), 4):
        loss = (NET(x) - y) ** 2
        torch.autograd.backward([loss], [torch.ones_like(loss)])
        optimizer.step()
        seen.append(len(x))
    return seen


def checkpointed():
    """Recomputes within each backward pass, to which prefetched batches do not belong."""
    from torch.utils.checkpoint import checkpoint

    optimizer, batches, seen = torch.optim.SGD(NET.parameters(), lr=0.01), iter(DataLoader(data(12), 4)), []
    ahead = next(batches)
    for batch in batches:
        (x, y), ahead = ahead, batch
        x.requires_grad_()
        (checkpoint(NET, x, use_reentrant=True) - y).pow(2).mean().backward()
        optimizer.step()
        seen.append(len(x))
    return seen


def without_a_loader():
    optimizer = torch.optim.AdamW(NET.parameters())
    train([(torch.randn(4, 4), torch.randn(4, 1))] * 3, optimizer)
    return [None] * 3


def forks():
    """Forks a process that trains something of its own."""
    seen = train(DataLoader(data(8), 4))
    if not (pid := os.fork()):
        train(DataLoader(data(8), 4))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    return seen


def seeded():
    """Draws random numbers after seeding everything, then without seeding torch."""
    import random

    import numpy as np

    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 - the one that scripts seed
    return [float(torch.rand(1)), random.random(), float(np.random.rand())]  # noqa: NPY002


def seeded_on_a_gpu():
    """Returns the seeds that a GPU's generator gets from all the calls in `set_seed` of Transformers."""
    seeds = []
    generator = SimpleNamespace(manual_seed=seeds.append)
    torch.cuda.default_generators, torch.cuda.random.device_count = (generator,), lambda: 1
    torch.cuda.random.current_device = lambda: 0
    torch.cuda.random._lazy_call = lambda call, **_: call()
    torch.manual_seed(3)
    torch.cuda.manual_seed_all(3)
    torch.cuda.manual_seed(3)
    return seeds


class Gpus:
    """Replaces two GPUs of 8 GiB below torch.cuda; notes contexts, caps and the current GPU."""

    def __init__(self):
        self.current, self.contexts, self.fractions, self.reserved, self.is_open = 0, [], [], [0, 0], False
        cuda = torch.cuda
        cuda._exchange_device = cuda._maybe_exchange_device = self.exchange
        cuda.device_count, cuda.is_initialized = lambda: 2, lambda: self.is_open
        cuda.current_device = lambda: self.current
        cuda.get_device_properties = lambda index: SimpleNamespace(total_memory=8 * 2**30)
        cuda.max_memory_reserved = self.reserved.__getitem__
        cuda.set_per_process_memory_fraction = self.cap
        torch._C._cuda_setDevice = self.select

    def exchange(self, index):
        before, self.current = self.current, index
        return before

    def cap(self, fraction, index):
        self.current = index  # as PyTorch does it in C++
        self.contexts.append(index)
        self.fractions.append((fraction, index))

    def select(self, index):
        self.open()
        self.current = index

    def open(self):
        if not self.is_open:
            self.is_open = True
            torch.cuda._queued_calls[-1][0]()

    def said(self):
        return [self.fractions, self.current]


def capped():
    """Returns the memory fractions set when CUDA starts, with two GPUs, and the GPU that is current then."""
    gpus = Gpus()
    gpus.open()
    return gpus.said()


def _a_rank(number, selects, results):
    gpus = Gpus()
    if selects:
        torch.cuda.set_device(number)
    gpus.open()
    at_first = list(gpus.fractions)
    gpus.reserved[number] = 2**20  # its model
    torch.optim.SGD(NET.parameters(), lr=0.01)
    results.put((number, at_first, *gpus.said()))


def spawned(selects=False):
    """Returns of each of two spawned processes its number, its first and all caps, and its current GPU."""
    site = os.path.dirname(sys.modules["autotune_wire"].__file__)  # noqa: PTH120 - armed as a command's script is
    os.environ["PYTHONPATH"] = os.pathsep.join([site, os.environ["PYTHONPATH"]])
    sys.modules["__main__"] = ModuleType("__main__")  # not this process's, which children would run
    results = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(_a_rank, (selects, results), nprocs=2)
    return sorted(results.get() for _ in range(2))


def spawned_selecting():
    return spawned(selects=True)


def on_the_host(**cuda):
    """Trains on the host although a GPU is available."""
    torch.version.cuda, torch.cuda.init = "13.0", lambda: None
    vars(torch.cuda).update({name: lambda *_, value=value: value for name, value in cuda.items()})
    return train(DataLoader(data(8), 4))


def pinned(reserved_bytes=0):
    """Uses the GPU only for batches in pinned memory."""
    stream = SimpleNamespace(query=lambda: True)
    opened = {"is_initialized": True, "device_count": 1, "current_stream": stream}
    return on_the_host(**opened, is_current_stream_capturing=False, max_memory_reserved=reserved_bytes)


def offloaded():
    """Keeps the optimizer's state on the host and the model on the GPU."""
    return pinned(2**20)


def needs_a_gpu():
    NET.cuda()


class Lines(IterableDataset):
    """Yields all items in every worker."""

    def __iter__(self):
        return iter(data(22))


def lines():
    return train(DataLoader(Lines(), 8))


def saved():
    """Saves over a file that a view has as a link; torch writes it without telling Python."""
    os.chdir(os.environ["AUTOTUNE_VIEW"])
    torch.jit.save(torch.jit.script(NET), "model.pt")
    return os.path.getsize("model.pt")  # noqa: PTH202 - as a script may


def changes():
    """Writes, appends, renames and removes in directories that a view has as links."""
    os.chdir(os.environ["AUTOTUNE_VIEW"])
    Path("checkpoints/last.pt").write_text("new")
    with open("checkpoints/kept.pt", "a") as file:  # noqa: PTH123
        file.write("more")
    os.mkdir("checkpoints/more")  # noqa: PTH102
    os.rename("checkpoints/old.pt", "checkpoints/old+.pt")  # noqa: PTH104
    shutil.rmtree("runs/1")
    kept = Path("checkpoints/kept.pt").read_text()
    return [sorted(os.listdir("checkpoints")), kept, sorted(os.listdir("runs"))]  # noqa: PTH208


def fails():
    train(DataLoader(data(8), 4))
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


def tell(name):
    print(json.dumps(globals()[name]()))
