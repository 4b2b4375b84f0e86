"""Writes down the options of a script and the values given to them, from its parser or configuration."""

from __future__ import annotations

import argparse
import inspect
import sys
from typing import Any, Callable, Iterator, Mapping  # noqa: UP035 - for Python 3.8

from autotune_imports import attempt, replace

Write = Callable[[Mapping[str, Any]], None]  # appends a note to the file of the probe
SCALARS = (bool, int, float, str)
_DEEPEST = 3


def scalar(value: Any) -> Any:
    return value if isinstance(value, SCALARS) else None


def note_parsers(write: Write) -> None:
    def parses(parse: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        parsed = parse(self, *args, **kwargs)
        write({"parser": list(_options(self, vars(parsed[0])))})
        return parsed

    replace(argparse.ArgumentParser, "parse_known_args", parses)


def _options(parser: Any, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for action in parser._actions:
        flags = [flag for flag in action.option_strings if flag.startswith("-")]
        if not flags or action.dest in ("help", "version"):
            continue
        words = [flag for flag in flags if flag.startswith("--")] or flags
        yield {
            "name": action.dest,
            "flags": flags,
            "flag": max((f for f in words if not f.startswith("--no")), key=len, default=words[0]),
            "is_switch": action.nargs == 0,
            "turns": scalar(action.const) if action.nargs == 0 else None,
            "value": scalar(values.get(action.dest)),
            "choices": [scalar(one) for one in action.choices] if action.choices else [],
        }


def note_click(write: Write, click: Any) -> None:
    def invokes(invoke: Any, self: Any, context: Any) -> Any:
        write({"parser": [_click_option(one, context.params) for one in self.params if one.opts]})
        return invoke(self, context)

    replace(click.Command, "invoke", invokes)


def _click_option(option: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    flags = [flag for flag in option.opts if flag.startswith("-")]
    return {
        "name": option.name,
        "flags": flags,
        "flag": max(flags, key=len, default=""),
        "is_switch": bool(getattr(option, "is_flag", False)),
        "turns": True,
        "value": scalar(values.get(option.name)),
        "choices": list(getattr(option.type, "choices", ())),
    }


def note_fire(write: Write, core: Any) -> None:
    """Writes down the parameters of each function that Fire calls, with the values that the line gave."""

    def makes(make: Any, function: Any, *args: Any) -> Any:
        parse = make(function, *args)

        def parses(words: Any) -> Any:
            parsed = parse(words)
            (given, named), *_ = parsed
            attempt(lambda _: write({"function": list(_parameters(function, given, named))}), function)
            return parsed

        return parses

    replace(core, "_MakeParseFn", makes)


def _parameters(function: Any, given: Any, named: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the parameters as options, except those that are given as a word without a value."""
    bound = inspect.signature(function).bind(*given, **named)
    bound.apply_defaults()
    for name, value in bound.arguments.items():
        flags = sorted({f"--{name}", f"--{name.replace('_', '-')}"})
        if not isinstance(value, bool) or not {*flags, f"--no{name}"} & {*sys.argv}:
            option = {"name": name, "flags": flags, "flag": f"--{name}", "is_switch": False, "turns": None}
            yield {**option, "value": scalar(value), "choices": []}


def note_hydra(write: Write, module: Any) -> None:
    def sets(set_config: Any, self: Any, config: Any) -> Any:
        _note_config(write, {name: config[name] for name in config if name != "hydra"})
        return set_config(self, config)

    replace(module.HydraConfig, "set_config", sets)


def note_omegaconf(write: Write, module: Any) -> None:
    """Writes down the configuration into which a script merges its command line."""
    from_cli, merge = module.OmegaConf.from_cli, module.OmegaConf.merge
    given: list[Any] = []

    def reads(*args: Any, **kwargs: Any) -> Any:
        given.append(from_cli(*args, **kwargs))
        return given[-1]

    def merges(*configs: Any) -> Any:
        merged = merge(*configs)
        if any(one is config for one in given for config in configs):
            _note_config(write, module.OmegaConf.to_container(merged))
        return merged

    module.OmegaConf.from_cli, module.OmegaConf.merge = staticmethod(reads), staticmethod(merges)


def _note_config(write: Write, config: Any) -> None:
    write({"config": {"form": "{name}={value}", "values": dict(flat(config))}})


def flat(value: Any, above: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yields the scalars in a nested mapping, or in an object with attributes, by dotted path."""
    inner = value if isinstance(value, Mapping) else getattr(value, "__dict__", None)
    try:
        items = list(inner.items()) if inner is not None else list(value.items())
    except Exception:  # noqa: BLE001 - a configuration's class can do anything
        return
    for name, one in items:
        if isinstance(one, SCALARS):
            yield f"{above}{name}", one
        elif depth < _DEEPEST and isinstance(name, str) and not name.startswith("_"):
            yield from flat(one, f"{above}{name}.", depth + 1)
