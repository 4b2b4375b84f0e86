"""A GPU for a CPU build of torch: what lies below `torch.cuda`'s Python is replaced, as far as trials use it.

Python imports this module by itself where its directory is on PYTHONPATH. FAKE_CUDA names a file of JSON that
is read when a process opens CUDA: `total_bytes`; `elsewhere_bytes`, what others and the context take;
`broken`, what the driver says instead. As in torch's C++, CUDA is lost to the forks of a process that has
asked the runtime for its devices; the question that NVML answers does no harm. `torch.cuda.fake` is the
device: a workload allocates on it, and gives it work.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

MIB = 2**20


class Device:
    """Memory behind a caching allocator that gives nothing back unless it has to; one stream of work."""

    def __init__(self):
        self.is_asked = self.is_in_bad_fork = False
        self.fraction = 1.0
        self.allocated = self.reserved = self.peak = self.reserved_peak = self.ooms = self.retries = 0
        self.busy_until_s = 0.0
        self.waits = 0
        self.set = {"total_bytes": 2**33, "elsewhere_bytes": 0, "broken": None}

    def ask(self):
        """What `poison_fork` does: a process forked from here on cannot use CUDA."""
        if not self.is_asked:
            self.is_asked = True
            os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self):
        self.is_in_bad_fork = True

    def open(self):
        self.ask()
        self.set |= json.loads(Path(os.environ["FAKE_CUDA"]).read_text())
        if self.set["broken"]:
            raise RuntimeError(self.set["broken"])

    def free(self):
        return self.set["total_bytes"] - self.set["elsewhere_bytes"] - self.reserved

    def memory(self):
        return self.free(), self.set["total_bytes"]

    def allocate(self, size):
        """Takes `size` bytes, out of the cache first; raises torch's OutOfMemoryError without room for it."""
        import torch

        if self.allocated + size > self.reserved:
            allowed = self.fraction * self.set["total_bytes"]
            room = min(allowed, self.set["total_bytes"] - self.set["elsewhere_bytes"])
            if self.allocated + size > room:
                self.reserved = self.allocated
                self.ooms += 1
                self.retries += 1
                raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size / MIB:.2f} MiB.")
            self.reserved = min(room, max(self.reserved, self.allocated + 2 * size))
        self.allocated += size
        self.peak, self.reserved_peak = (
            max(self.peak, self.allocated),
            max(self.reserved_peak, self.reserved),
        )

    def release(self, size):
        """Gives `size` bytes back to the cache."""
        self.allocated -= size

    def launch(self, seconds):
        """Gives the device work of so many seconds, without waiting for it."""
        self.busy_until_s = max(time.monotonic(), self.busy_until_s) + seconds

    def is_idle(self):
        return time.monotonic() >= self.busy_until_s

    def wait(self):
        self.waits += 1
        time.sleep(max(0.0, self.busy_until_s - time.monotonic()))

    def stats(self, index):
        return {
            "allocated_bytes": {"all": {"current": self.allocated, "peak": self.peak}},
            "reserved_bytes": {"all": {"current": self.reserved, "peak": self.reserved_peak}},
            "num_ooms": self.ooms,
            "num_alloc_retries": self.retries,
        }

    def cap(self, fraction, index):
        self.fraction = fraction


def patch(torch):
    device = torch.cuda.fake = Device()
    torch.version.cuda = "13.0"

    def count():
        device.ask()
        return 1

    native = torch._C
    native._cuda_getDeviceCount, native._cuda_init = count, device.open
    native._cuda_getDevice, native._cuda_memoryStats = (lambda: 0), device.stats
    torch.cuda._exchange_device = torch.cuda._maybe_exchange_device = lambda index: 0
    native._cuda_getCurrentRawStream = lambda index: 0  # which torch._dynamo imports
    native._cuda_setMemoryFraction, native._cuda_getArchFlags = device.cap, lambda: None
    torch.cuda._is_in_bad_fork = lambda: device.is_in_bad_fork
    torch.cuda._device_count_nvml = lambda: 1
    torch.cuda._cudart = SimpleNamespace(cudaMemGetInfo=lambda index: device.memory())
    torch.cuda._get_device_properties = lambda index: SimpleNamespace(total_memory=device.set["total_bytes"])
    torch.cuda.current_stream = lambda index=None: SimpleNamespace(query=device.is_idle)
    torch.cuda.synchronize = lambda index=None: device.wait()
    torch.cuda.is_current_stream_capturing = lambda: False
    zeros = torch.zeros

    def on_host(*size, device=None, **rest):
        """A tensor that is said to be on the GPU opens it, and lies on the host."""
        if device is not None and torch.device(device).type == "cuda":
            torch.cuda._lazy_init()
            device = None
        return zeros(*size, device=device, **rest)

    torch.zeros = on_host


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def run_and_patch(module):
            run(module)
            patch(module)

        spec.loader.exec_module = run_and_patch
        return spec


if "FAKE_CUDA" in os.environ:
    sys.meta_path.insert(0, Finder())
