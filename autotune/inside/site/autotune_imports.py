"""Does something to a module as soon as it has been imported, and imports nothing by itself."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict  # noqa: UP035 - for Python 3.8

Actions = Dict[str, Callable[[Any], None]]  # noqa: UP006


class After:
    """A finder that finds nothing itself: it adds its actions to what the others find."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions

    def arm(self) -> None:
        """From now on; a module that is there has its action at once."""
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]  # its interface is read by names
        for name in [name for name in self._actions if name in sys.modules]:
            self._actions.pop(name)(sys.modules[name])

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """A module's spec as the others find it, whose loader then calls the action."""
        action = self._actions.get(name)
        if action is None:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                _call_after(spec.loader, action)
                return spec
        return None


def _call_after(loader: Any, action: Callable[[Any], None]) -> None:
    execute = loader.exec_module

    def exec_module(module: Any) -> None:
        execute(module)
        try:
            action(module)
        except Exception as error:  # noqa: BLE001 - never the script's
            print(
                f"autotune: {module.__name__} is as it is: {type(error).__name__}: {error}", file=sys.stderr
            )

    loader.exec_module = exec_module
