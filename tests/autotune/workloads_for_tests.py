"""Workloads that end in every way there is. Real children import this module by its name."""

import ctypes
import json
import math
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

HELD = []
BIG = 2**34  # more than any cap in the tests


class DivergedError(Exception):
    """Recognized by its name, as R2Gen's is."""


class UnprintableError(Exception):
    def __str__(self):
        raise ValueError("no text")


def steps(config, workdir):
    for step in range(config.get("steps", 3)):
        yield {"samples": 4 * (step + 1), "train_loss": 1.0}


def computes(config, workdir):
    """Five steps of a layer of 64 by 32, four samples each."""
    import torch

    model = torch.nn.Linear(64, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 6):
        torch.autograd.backward(model(torch.ones(4, 64)).sum())
        optimizer.step()
        yield {"samples": 4 * step, "train_loss": 1.0}


def scalars(config, workdir):
    import numpy as np
    import torch

    yield {
        "samples": np.int64(4),
        "train_loss": torch.tensor(0.5, requires_grad=True),
        "scores": {"bleu_4": np.float32(0.25)},
    }


def yields(config, workdir):
    """Yields the garbage that `kind` names: as JSON, the config could not hold it."""
    garbage = {
        "text": "samples",
        "no samples": {"train_loss": 1.0},
        "half a sample": {"samples": 0.5},
        "true": {"samples": True},
        "an object": {"samples": 1, "what": object()},
        "an object inside": {"samples": 1, "what": [object()]},
    }
    yield garbage[config["kind"]]


def backwards(config, workdir):
    yield {"samples": 8}
    yield {"samples": 4}


def nothing(config, workdir):
    yield from ()


def losses(config, workdir):
    for step, loss in enumerate(config["losses"]):
        yield {"samples": step, "train_loss": math.nan if loss is None else loss}


def raises(config, workdir):
    yield {"samples": 1}
    raise {
        "value": ValueError("the loss \x1b[31mis\nbad"),
        "diverged": DivergedError("loss is nan"),
        "unprintable": UnprintableError(),
        "exit": SystemExit(2),
    }[config["kind"]]


def dies(config, workdir):
    yield {"samples": 1}
    match config["how"]:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "term":
            os.kill(os.getpid(), signal.SIGTERM)
            yield {"samples": 2}
        case "segv":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "bad_alloc":  # as a thread of C++ would
            os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
            os.abort()
        case "abort":
            os.abort()


def fills_memory(config, workdir):
    yield {"samples": 1}
    match config["with"]:
        case "tensors":
            import torch

            HELD.extend(torch.ones(2**22) for _ in range(1000))
        case "a convolution":
            import torch

            torch.nn.functional.conv2d(torch.ones(64, 3, 512, 512), torch.ones(64, 3, 3, 3))
        case "an array":
            import numpy as np

            HELD.append(np.ones(BIG))
        case "lists":
            HELD.extend([0] * 2**20 for _ in range(1000))
        case "bytes":
            HELD.append(bytearray(BIG))


def imports_torch(config, workdir):
    yield {"samples": 1}
    import torch

    yield {"samples": 2, "train_loss": float(torch.ones(()))}


class Samples:
    """A data set whose workers fail as `fault` says."""

    def __init__(self, fault):
        self.fault = fault

    def __len__(self):
        return 64

    def __getitem__(self, index):
        match self.fault:
            case "memory":
                HELD.append(bytearray(BIG))
            case "array":
                import numpy as np

                HELD.append(np.ones(BIG))
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        return index


def loads(config, workdir):
    from torch.utils.data import DataLoader

    yield {"samples": 1}
    for _ in DataLoader(Samples(config["fault"]), num_workers=1):
        pass


def loads_what_cannot_be_pickled(config, workdir):
    from torch.utils.data import DataLoader

    class Local(Samples):
        pass

    batches = len(DataLoader(Local(None), num_workers=1, batch_size=8))
    yield {"samples": batches, "start_method": multiprocessing.get_start_method()}


def has_family(config, workdir):
    """Keeps running, with loader workers and a program that watch for no parent."""
    from torch.utils.data import DataLoader

    batches = iter(DataLoader(Samples(None), num_workers=2, persistent_workers=True))
    next(batches)
    program = subprocess.Popen(["sleep", "600"])
    yield {"samples": 1, "program": program.pid}
    time.sleep(600)


def leaves_family(config, workdir):
    program = subprocess.Popen(["sleep", "600"])
    yield {"samples": 1, "program": program.pid}


def starts_sessions(config, workdir):
    """Keeps running beside a process with a session of its own, as torchrun starts its workers."""
    worker = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield {"samples": 1, "program": worker.pid}
    time.sleep(600)


def endless(config, workdir):
    """Trains until it is closed, and then leaves a checkpoint."""
    samples = 0
    try:
        while True:
            samples += 1
            yield {"samples": samples}
            time.sleep(0.01)
    finally:
        Path(workdir, "checkpoint").write_text(json.dumps(samples))


def saves_for_long(config, workdir):
    """Its checkpoint takes much longer than its steps."""
    try:
        yield from endless(config, workdir)
    finally:
        time.sleep(1.0)


def hangs_here(config, workdir):
    for step in range(config.get("steps", 1)):
        time.sleep(0.01)
        yield {"samples": step, **({"bleu_4": 0.1} if config.get("evaluates") else {})}
    Path(workdir, "hanging").touch()
    time.sleep(600)


def waits_for_a_program(config, workdir):
    """Takes three steps more when the program has ended."""
    yield {"samples": 1}
    Path(workdir, "hanging").touch()
    subprocess.run(["sleep", "600"], check=False)
    yield from ({"samples": step} for step in (2, 3, 4))
    time.sleep(600)


def stands_still(config, workdir):
    """Records without end that lead nowhere."""
    while True:
        yield {"samples": 1}
        time.sleep(0.001)


def says_much(config, workdir):
    yield {"samples": 1, "text": "x" * config["bytes"]}


def remembers(config, workdir):
    """What of the previous trial is still there."""
    import torch

    yield {
        "samples": 1,
        "held": len(HELD),
        "variable": os.environ.get("LEFT_BEHIND"),
        "limit": resource.getrlimit(resource.RLIMIT_DATA)[0],
        "threads": torch.get_num_threads(),
        "seed": torch.initial_seed(),
    }
    HELD.append(bytearray(2**20))
    os.environ["LEFT_BEHIND"] = "1"
    torch.set_num_threads(7)
    torch.manual_seed(7)
    sys.path.clear()


def shares_memory(config, workdir):
    """Holds shared memory, which no limit of a single process counts, until it is ended."""
    import mmap

    yield {"samples": 1}
    for _ in range(config["blocks"]):
        HELD.append(mmap.mmap(-1, 2**24))
        HELD[-1].write(b"x" * 2**24)
        time.sleep(config["pause_s"])
    time.sleep(600)


HOLDS = "import time; held = b'x' * int(100e6); print('holds', flush=True); time.sleep(600)"
GROWS = "held = [b'x' * 2**22 for _ in range(1000)]"


def has_heavy_children(config, workdir):
    """Each of them is within the limit; all together are not."""
    yield {"samples": 1}
    for _ in range(config["children"]):
        HELD.append(subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE))
        HELD[-1].stdout.readline()
        yield {"samples": 1}
    time.sleep(600)


def runs_a_heavy_program(config, workdir):
    """The program has no limit of its own, and its end is reported as any error is."""
    yield {"samples": 1}
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    subprocess.run([sys.executable, "-c", GROWS], check=True)


def shares_by_name(config, workdir):
    """Holds named shared memory, as a killed process leaves it behind."""
    from multiprocessing.shared_memory import SharedMemory

    HELD.append(SharedMemory(create=True, size=2**20))
    HELD[-1].buf[:1] = b"x"
    yield {"samples": 1, "file": f"/dev/shm/{HELD[-1].name}"}
    time.sleep(600)


def tells_a_secret(config, workdir):
    """Gives it away in every way that there is, and then dies of it."""
    import logging
    import threading

    secret = config["secret"]
    yield {"samples": 1, "note": secret, "notes": [{"url": f"x://me:{secret}@host"}]}

    def says(who):
        raise ValueError(f"{who}: {secret}")

    print(f"print: {secret}", flush=True)
    logging.getLogger("some").warning("logging: %s", secret)
    subprocess.run(["sh", "-c", f"echo subprocess: {secret}; echo url: x://me:short@host >&2"], check=True)
    worker = multiprocessing.Process(target=says, args=("worker",))
    worker.start()
    worker.join()
    thread = threading.Thread(target=says, args=("thread",))
    thread.start()
    thread.join()
    if config["dies"]:
        os.write(2, f"terminate called: what(): {secret}".encode())
        os.abort()
    says("main")


def maps(config, workdir):
    """Reads a file through the page cache, or holds as much memory of its own."""
    import mmap

    size = 2**26
    workdir.mkdir(exist_ok=True)
    (workdir / "large").write_bytes(bytes(size))
    yield {"samples": 1}
    if config["own"]:
        held = bytearray(size)
        for place in range(0, size, 4096):
            held[place] = 1
    else:
        with (workdir / "large").open("rb") as file:
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert sum(held[place] for place in range(0, size, 4096)) == 0
    yield {"samples": 2}
    del held


def crashes_full(config, workdir):
    """Fills its memory limit, and then does what code does that gets no more memory and does not check."""
    held = bytearray(config["bytes"])
    yield {"samples": 1, "held": len(held)}
    ctypes.string_at(0)


def paces(config, workdir):
    """Steps of `step_s`, for so many `steps` or without end; it fails at step `fails_at`.

    Before step `evaluated_at` it is evaluated for two seconds.
    """
    for step in range(config.get("steps", 10**9)):
        time.sleep(config["step_s"])
        if step == config.get("evaluated_at"):
            time.sleep(2.0)
            yield {"samples": 4 * step, "bleu_4": 0.5}
        if step == config.get("fails_at"):
            raise MemoryError("no room for a step more")
        yield {"samples": 4 * (step + 1), "train_loss": 1.0}


_COUNTER = "import time\nwhile True:\n    print(end='.', flush=True)\n    time.sleep(0.005)"


def counts(config, workdir):
    """Counts in a file, while a program that it has started counts in another one."""
    with (workdir / "counter").open("w") as own, (workdir / "program").open("w") as theirs:
        program = subprocess.Popen([sys.executable, "-c", _COUNTER], stdout=theirs)
        for samples in range(1, 10**9):
            time.sleep(0.005)
            print(end=".", flush=True, file=own)
            yield {"samples": samples, "program": program.pid}


def compiles(config, workdir):
    """Compiles with its first step, and again with the first batch of another size."""
    import torch

    @torch.compile(backend="eager", dynamic=False)
    def twice(x):
        return x + x

    for step, size in enumerate([4, 4, 4, 3, 4, 3, 4], start=1):
        twice(torch.ones(size))
        yield {"samples": 8 * step, "train_loss": 1.0}
    yield {"samples": 56, "bleu_4": 0.5}
