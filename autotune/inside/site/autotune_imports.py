"""Runs actions on a module as soon as it has been imported, without importing it; replaces its functions."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable  # noqa: UP035 - for Python 3.8

Action = Callable[[Any], None]


class After:
    """A meta-path finder that adds actions to the modules that other finders find."""

    def __init__(self) -> None:
        self._actions: dict[str, list[Action]] = {}
        sys.meta_path.insert(0, self)

    def do(self, name: str, action: Action) -> None:
        """Calls `action` with the module `name` once it is imported, immediately if it already is."""
        if name in sys.modules:
            attempt(action, sys.modules[name])
        else:
            self._actions.setdefault(name, []).append(action)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Returns a module's spec from the other finders, with a loader that also runs the actions."""
        actions = self._actions.get(name)
        if not actions:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)  # absent in old finders
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                attempt(lambda loader: _call_after(loader, actions), spec.loader)
                return spec
        return None


def _call_after(loader: Any, actions: list[Action]) -> None:
    execute = loader.exec_module

    def exec_module(module: Any) -> None:
        execute(module)
        for action in actions:
            attempt(action, module)

    loader.exec_module = exec_module


def replace(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replaces the function `name` of a class or module; calls run `around(original, *arguments)` instead."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(owner, name, replacement)


def attempt(action: Action, what: Any, lacking: str = "") -> None:
    """Calls `action(what)`; if that fails, prints `lacking`, which says what is lost, and continues."""
    try:
        action(what)
    except Exception as error:  # noqa: BLE001 - must never end the script
        lacking = lacking or f"{getattr(what, '__name__', what)} is left unchanged"
        print(f"autotune: {lacking}: {type(error).__name__}: {error}", file=sys.stderr)
