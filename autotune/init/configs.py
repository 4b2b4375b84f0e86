"""Reads settings from overridable constants in a script, and from Hydra's YAML."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autotune.core.settings import Setting
from autotune.init import syntax
from autotune.init.options import Option
from autotune.init.sources import Source

_DEEPEST = 8
_OVERRIDES = re.compile(r"^([\w.-]*conf\w*)\.py$")


def overridden(source: Source) -> list[Option]:
    """Returns the constants of a script that `exec`s a configurator to override them by `--name=value`."""
    calls = [
        (call.lineno, text) for call in syntax.calls(source.tree, "exec") for text in syntax.strings(call)
    ]
    lines = [line for line, text in calls if _OVERRIDES.match(text)]
    if not lines:
        return []
    assigned = [
        node for node in source.tree.body if isinstance(node, ast.Assign) and node.lineno < min(lines)
    ]
    return [option for node in assigned for option in _constant(node)]


def _constant(node: ast.Assign) -> Iterator[Option]:
    for target in node.targets:
        if not isinstance(target, ast.Name) or target.id.startswith("_"):
            continue
        choices = _alternatives(node.value)
        value = choices[0] if choices else syntax.value(node.value)
        if isinstance(value, str | bool | int | float):
            yield Option(target.id, f"--{target.id}={{}}", value, choices)


def _alternatives(node: ast.expr) -> tuple[Setting, ...]:
    """Returns `a` and `b` of `a if ... else b`."""
    if not isinstance(node, ast.IfExp):
        return ()
    values = (syntax.value(node.body), syntax.value(node.orelse))
    return values if all(isinstance(v, str | bool | int | float) for v in values) else ()


@dataclass(frozen=True)
class Hydra:
    """Default configuration that Hydra composes from the files in `root`."""

    root: Path
    values: Mapping[str, Any]

    @property
    def options(self) -> list[Option]:
        """Its scalars, by dotted name."""
        return list(_flat(self.values))

    @property
    def targets(self) -> list[str]:
        """Modules of its `_target_` classes."""
        return [name.rpartition(".")[0] for name in _targets(self.values)]


def hydra(directory: Path, source: Source) -> Hydra | None:
    """Returns the configuration of a script; None if it does not use Hydra."""
    for call in syntax.calls(source.tree, "main"):
        place, name = (syntax.value(syntax.keyword(call, n)) for n in ("config_path", "config_name"))
        if syntax.dotted(call).endswith("hydra.main"):
            root = directory / source.path.parent / (place if isinstance(place, str) else ".")
            return Hydra(root, _composed(root, Path(name), (), 0) if isinstance(name, str) else {})
    return None


def _targets(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _targets(value)
        elif name == "_target_" and isinstance(value, str):
            yield value


def _composed(root: Path, name: Path, package: tuple[str, ...], depth: int) -> dict[str, Any]:
    """Returns the values of the file `name` merged over its defaults list."""
    file = (root / name).with_suffix(".yaml")
    if depth > _DEEPEST or not file.is_file():
        return {}
    text = file.read_text(encoding="utf-8", errors="replace")
    values = _mapping(text)
    place = () if re.search(r"^#\s*@package\s+_global_", text, re.MULTILINE) else package
    composed: dict[str, Any] = {}
    for group, chosen in _defaults(values.pop("defaults", None)):
        if group == "_self_":
            continue
        inner = (*package, *Path(group).parts) if group else package
        _merge(composed, _composed(root, name.parent / group / chosen, inner, depth + 1))
    _merge(composed, _below(place, values))
    return composed


def _mapping(text: str) -> dict[str, Any]:
    try:
        values = yaml.safe_load(text)
    except Exception:  # noqa: BLE001 - its own reader may accept what PyYAML rejects
        return {}
    return dict(values) if isinstance(values, dict) else {}


def read(file: Path) -> list[Option]:
    """Returns the settings in a YAML file; none if it does not exist."""
    if file.suffix not in {".yaml", ".yml"} or not file.is_file():
        return []
    return list(_flat(_mapping(file.read_text(encoding="utf-8", errors="replace"))))


def _defaults(listed: Any) -> Iterator[tuple[str, str]]:
    """Yields group and choice of every entry of a defaults list that has a choice."""
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, str):
            yield ("_self_", "") if entry == "_self_" else ("", entry)
        elif isinstance(entry, dict):
            for group, chosen in entry.items():
                if isinstance(chosen, str):
                    yield re.sub(r"^(optional|override)\s+", "", str(group)).strip("/"), chosen


def _below(package: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    below: dict[str, Any] = dict(values)
    for name in reversed(package):
        below = {name: below}
    return below


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for name, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = value


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[Option]:
    """Yields every scalar by dotted name, except interpolated values."""
    for name, value in values.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _flat(value, f"{path}.")
        elif _is_plain(value) and not str(name).startswith("_"):
            yield Option(path, f"{path}={{}}", value)


def _is_plain(value: Any) -> bool:
    return value is None or (isinstance(value, str | bool | int | float) and "${" not in str(value))
