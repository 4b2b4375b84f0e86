"""Trains what a function builds: `python -m autotune_build KIND package.module:function`."""

from __future__ import annotations

import importlib
import json
import os
import sys

import autotune_wire


def main() -> None:
    kind, build = sys.argv[1:]
    module, _, function = build.partition(":")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - a script's directory, before any of its imports
    settings = json.loads(os.environ[autotune_wire.SETTINGS])
    built = getattr(importlib.import_module(module), function)(settings)
    importlib.import_module(f"autotune_{kind}").train(built, settings)


if __name__ == "__main__":
    main()
