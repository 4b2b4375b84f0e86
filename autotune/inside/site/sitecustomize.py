"""Imported by Python before a script: runs the environment's own sitecustomize, then arms the hook."""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.realpath(os.path.dirname(__file__))  # noqa: PTH120 - pathlib would slow down every interpreter


def _run_the_environments_own() -> None:
    """Runs the next sitecustomize on the path, as Python would have; its errors are left to Python."""
    path = [entry for entry in sys.path if os.path.realpath(entry) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    _run_the_environments_own()
finally:
    if "AUTOTUNE_SOCKET" in os.environ or "AUTOTUNE_OVERRIDES" in os.environ:
        import autotune_step_hook

        autotune_step_hook.arm()
