"""What torch's CUDA build would see of made-up GPUs, for a CPU build.

Python reads this module by itself where its directory is on PYTHONPATH. FAKE_TORCH is JSON: the `gpus` in the
order of their buses, as `FakeGpu.seen` describes them, and the `kernels` that torch has. What is computed on
"cuda" is computed on the CPU.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
from types import SimpleNamespace


def shown(environment):
    """The GPUs that CUDA shows, in its order: by default the fastest first, and of slices the first alone."""
    gpus = json.loads(environment["FAKE_TORCH"])["gpus"]
    if environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        gpus = sorted(gpus, key=lambda gpu: gpu["compute_capability"], reverse=True)
    names = environment.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(len(gpus)))))
    found = []
    for name in filter(None, names.split(",")):
        if not (named := [gpu for i, gpu in enumerate(gpus) if name == str(i) or name in gpu["uuids"]]):
            break
        found += [{**named[0], "uuid": name if name in named[0]["uuids"] else named[0]["uuids"][0]}]
    divided = [gpu for gpu in found if gpu["uuid"].startswith("MIG-")]
    return divided[:1] or found


def patch(torch):
    gpus = shown(os.environ)

    def properties(index):
        major, minor = gpus[index]["compute_capability"]
        uuid = gpus[index]["uuid"].partition("-")[2]
        kept = {"name": gpus[index]["name"], "total_memory": gpus[index]["memory_bytes"]}
        return SimpleNamespace(major=major, minor=minor, uuid=uuid, **kept)

    class OnCpu(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            place = torch.device(kwargs.get("device") or "cpu")
            if place.type == "cuda":
                if why := gpus[place.index or 0]["raises"]:
                    raise RuntimeError(why)
                kwargs["device"] = "cpu"
            return function(*args, **kwargs)

    torch.version.cuda = "13.0"
    cuda = torch.cuda
    cuda.init = lambda: None
    cuda.is_available = lambda: bool(gpus)
    cuda.device_count = lambda: len(gpus)
    cuda.get_device_properties = properties
    cuda.get_arch_list = lambda: json.loads(os.environ["FAKE_TORCH"])["kernels"]
    cuda.set_per_process_memory_fraction = lambda fraction, device=None: None
    OnCpu().__enter__()


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


if "FAKE_TORCH" in os.environ:
    sys.meta_path.insert(0, Finder())
