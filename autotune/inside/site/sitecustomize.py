"""Imported by Python before a script: runs the environment's own sitecustomize, then arms the hook."""

import importlib
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


def _arm() -> None:
    armed_by = {
        "AUTOTUNE_VIEW": "autotune_view",
        "AUTOTUNE_SEED": "autotune_seed",
        "AUTOTUNE_PROBE": "autotune_probe",
        "AUTOTUNE_SOCKET": "autotune_step_hook",
        "AUTOTUNE_OVERRIDES": "autotune_step_hook",
    }
    names = dict.fromkeys(name for variable, name in armed_by.items() if variable in os.environ)
    if names:
        from autotune_imports import After  # noqa: PLC0415 - other interpreters need none of it

        after = After()
        for name in names:
            importlib.import_module(name).arm(after)


try:
    _run_the_environments_own()
finally:
    _arm()
