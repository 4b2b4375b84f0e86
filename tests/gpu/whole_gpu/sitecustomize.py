"""The GPUs of `torch_on_fakes` with the memory of `fake_cuda`: what trials open, fill and lose.

Python reads this module by itself where its directory is on PYTHONPATH. It takes both of their variables.
"""

import importlib.util
import os
import sys
from pathlib import Path

_LARGE = 2**20
_REAL = ("init", "set_per_process_memory_fraction")  # which `fake_cuda` has something below


def load(name):
    """Another directory's module of this name, without what it has put before the imports."""
    file = Path(__file__).parents[1] / name / "sitecustomize.py"
    spec = importlib.util.spec_from_file_location(f"{name}_fakes", file)
    module = importlib.util.module_from_spec(spec)
    before = list(sys.meta_path)
    spec.loader.exec_module(module)
    sys.meta_path[:] = before
    return module


def refuse(model, *place, **rest):
    raise RuntimeError("a model cannot be trained on a fake GPU")


def patched_by_both(memory, devices):
    patch = memory.patch

    def patch_both(torch):
        kept = {name: getattr(torch.cuda, name) for name in _REAL}
        patch(torch)
        devices.patch(torch)
        vars(torch.cuda).update(kept)
        ones = torch.ones

        def on_gpu(*size, device=None, **rest):
            """What is large takes the fake's memory, and none of the host's."""
            if device is not None and torch.device(device).type == "cuda":
                torch.cuda._lazy_init()
                if size and isinstance(size[0], int) and size[0] > _LARGE:
                    torch.cuda.fake.allocate(size[0])
                    return ones(1, **rest)
            return ones(*size, device=device, **rest)

        torch.ones = on_gpu
        torch.cuda.get_device_capability = lambda device=None: (8, 9)
        torch.cuda.manual_seed_all = lambda seed: None
        torch.nn.Module.to = refuse

    return patch_both


if "FAKE_TORCH" in os.environ:
    cuda = load("fake_cuda")
    cuda.patch = patched_by_both(cuda, load("torch_on_fakes"))
    sys.meta_path.insert(0, cuda.Finder())
