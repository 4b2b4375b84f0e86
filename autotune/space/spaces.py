"""Reads and writes search spaces: YAML and plain values in, a checked `Space` out."""

import json
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from autotune.core.errors import InputError, did_you_mean
from autotune.core.settings import LENGTH
from autotune.space import checks, lengths
from autotune.space.knobs import Distribution, Knob, PlannedLength, mistakes
from autotune.space.naming import nest
from autotune.space.space import Space
from autotune.workloads import registry


class _Loader(yaml.SafeLoader):
    """Accepts only JSON-like values: no other can be a setting."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        kind, problem = node.tag.rpartition(":")[2], ""
        if kind in {"binary", "omap", "pairs", "set", "timestamp"}:
            rule = "a value is text, a number, true, false, null, a list or a mapping"
            problem = f"{rule}, got !!{kind}, which quotes turn into text,"
        elif kind == "str" and "\0" in node.value:
            problem = "text may not hold the character NUL,"
        if problem:
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
        return super().construct_object(node, deep)


def parse_mapping(text: str, what: str) -> dict[str, Any]:
    """Returns the mapping in YAML `text`; raises InputError, beginning with `what`, if it is not one."""
    try:
        values = _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:  # without the line itself, which may hold a password
        at = error.problem_mark or error.context_mark
        where = f" in line {at.line + 1}, column {at.column + 1}" if at else ""
        raise InputError(f"{what}: not YAML: {error.problem or error.context}{where}") from None
    except Exception as error:  # noqa: BLE001 - PyYAML passes on errors of int, datetime and deep nesting
        raise InputError(f"{what}: not YAML: {type(error).__name__}") from None
    if not isinstance(values, dict):
        raise InputError(f"{what}: must be a mapping, got {type(values).__name__}")
    return values


def parse(text: str, source: str) -> Space:
    """Returns the search space in YAML `text`; raises InputError with every mistake, naming `source`."""
    return from_values(parse_mapping(text, f"search space {source}"), source)


def from_values(values: Mapping[str, Any], source: str) -> Space:
    """Returns the search space in `values`; raises InputError with every mistake, naming `source`."""
    try:
        space = Space.model_validate(registry.completed(values))
        json.dumps(to_values(space), ensure_ascii=False).encode()
    except ValidationError as error:
        raise InputError(f"search space {source}: {'; '.join(mistakes(error, Space))}") from None
    except UnicodeEncodeError:  # a lone surrogate, which YAML can escape
        raise InputError(f"search space {source}: must be text that UTF-8 can hold") from None
    return space


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of search spaces for editors, in the draft that every editor supports."""
    return {"$schema": "http://json-schema.org/draft-07/schema#", **Space.model_json_schema()}


def dump(space: Space) -> str:
    """Returns `space` as YAML that `parse` reads back."""
    return yaml.safe_dump(to_values(space), sort_keys=False)


def to_values(space: Space) -> dict[str, Any]:
    """Returns `space` as plain values that `from_values` reads back."""
    values = space.model_dump(mode="json", exclude_none=False)
    naming = space.naming
    values["baseline"] = nest({naming.path(name): value for name, value in space.baseline.items()})
    values["knobs"] = {}
    for name, knob in space.knobs.items():
        renamed = knob.renamed(naming.path) if isinstance(knob, PlannedLength) else knob
        dumped = renamed.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        values["knobs"][naming.path(name)] = dumped
    values["counted_in_steps"] = [naming.path(name) for name in space.counted_in_steps]
    values["follow_learning_rate"] = [naming.path(name) for name in space.follow_learning_rate]
    values["evaluate_every"] = space.evaluate_every and naming.path(space.evaluate_every)
    return values


def complete(space: Space, source: str) -> Space:
    """Returns `space` with the baseline's value in every choice; raises InputError with every mistake."""
    mistakes = [
        f"knob {n}: the baseline must give its value{did_you_mean(n, space.baseline)}"
        for n in space.knobs
        if n not in space.baseline and n != LENGTH
    ]
    mistakes += [*lengths.mistakes(space), *checks.setting_mistakes(space)]
    knobs: dict[str, Knob] = dict(space.knobs)
    for name, knob in space.knobs.items():
        if not isinstance(knob, Distribution) or name not in space.baseline:
            continue
        if knob.choice and not knob.contains(space.baseline[name]):
            knobs[name] = knob.including(space.baseline[name])
        elif not knob.contains(space.baseline[name]):
            mistakes.append(f"knob {name}: must contain the baseline's {space.baseline[name]!r}")
    completed = space.model_copy(update={"knobs": knobs})
    completed = completed if mistakes else lengths.completed(completed)
    mistakes += [] if mistakes else checks.limit_mistakes(completed)
    if mistakes:
        raise InputError(f"search space {source}: {'; '.join(mistakes)}")
    return completed
