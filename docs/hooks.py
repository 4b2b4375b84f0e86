"""What is made whenever the site is built: what pages say of commands and settings; the search's index."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import r2gen
from autotune.core.settings import COMMON, KnownSetting, Result
from autotune.space import spaces
from autotune.workloads import registry
from autotune.workloads.command.spec import Spec
from r2gen.config import Config
from r2gen.findings import PHRASES

_MARK = re.compile(r"^<!-- made from the code: (.+) -->$", re.MULTILINE)
_R2GEN = ("train", "evaluate", "generate", "sheet")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs' hook: a page's text, with what is made from the code in place of the marks for it."""
    return _MARK.sub(lambda mark: MADE[mark[1]](), markdown)


def on_post_build(config: Mapping[str, Any], **_: Any) -> None:
    """MkDocs' hook: the index of the search as a script, because a page on a disk can load no JSON."""
    index = Path(config["site_dir"], "search", "search_index.json")
    text = index.read_text(encoding="utf-8")
    index.with_suffix(".js").write_text(f"var __index = {text};\n", encoding="utf-8")


def _said(*arguments: str) -> str:
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(  # noqa: S603 - constants of this module
        [sys.executable, "-m", *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def commands() -> str:
    """Every command of the tuner, as typer documents it, without what it says of the whole."""
    text = _said("typer", "autotune.cli.app", "utils", "docs", "--name", "python -m autotune")
    return text[text.index("\n## ") :].replace("```console\n$ ", "```text\n")


def trainer_commands() -> str:
    """Every command of the trainer, in the words of its own help."""
    parts = [
        f"## `python -m r2gen {name}`\n\n```text\n{_said('r2gen', name, '--help')}```" for name in _R2GEN
    ]
    return "\n\n".join(parts)


def table(name: str) -> str:
    """The fields of one of the schema's objects; of the whole search space under the name "space"."""
    whole = spaces.schema()
    return _table(whole if name == "space" else whole["$defs"][name])


def _table(found: Mapping[str, Any]) -> str:
    heading = "| key | what it may be | default | what it is |\n| --- | --- | --- | --- |"
    rows = (_row(key, field, key in found.get("required", ())) for key, field in found["properties"].items())
    return "\n".join([heading, *rows])


def command() -> str:
    """The keys of a workload that is a command."""
    heading = "| key | required | what it is |\n| --- | --- | --- |"
    rows = (
        f"| `{key}` | {'yes' if field.is_required() else 'no'} | {field.description} |"
        for key, field in Spec.model_fields.items()
    )
    return "\n".join([heading, *rows])


def _row(key: str, field: Mapping[str, Any], required: bool) -> str:
    value = field.get("default")
    if value is None or isinstance(value, dict):  # of a dict its own fields say it
        default = "required" if required else ""
    else:
        default = f"`{_value(value)}`"
    text = field["description"].replace("|", "\\|").replace("<", "&lt;")
    return f"| `{key}` | {_allowed(field)} | {default} | {text} |"


def _allowed(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{_value(value)}`" for value in field["enum"])
    if "const" in field:
        return f"`{_value(field['const'])}`"
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_allowed(form) for form in field["anyOf"]))
    if "$ref" in field:
        return field["$ref"].rpartition("/")[2]
    if field["type"] == "array":
        size = f"{field['maxItems']} of " if "maxItems" in field else "list of "
        return size + _allowed(field.get("items") or field["prefixItems"][0])
    if field["type"] == "object":
        values = field.get("additionalProperties")
        return f"name to {_allowed(values)}" if isinstance(values, dict) else "mapping"
    return _NAMES[field["type"]] + _bounds(field)


_NAMES = {
    "string": "text",
    "boolean": "`true`, `false`",
    "integer": "whole number",
    "number": "number",
    "null": "`null`",
}
_BOUNDS = {
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "to {}",
    "exclusiveMaximum": "below {}",
    "multipleOf": "a multiple of {}",
}


def _bounds(field: Mapping[str, Any]) -> str:
    found = [text.format(_value(field[name])) for name, text in _BOUNDS.items() if name in field]
    return f" {', '.join(found)}" if found else ""


def _value(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower().replace("none", "null")
    return f"{value:g}" if isinstance(value, float) else str(value)


_RESULT = {
    Result.EQUAL: "no",
    Result.REORDERED: "at most by rounding",
    Result.ROUNDED: "by rounding",
    Result.OTHER: "yes",
}


def known_settings(workload: str | None = None) -> str:
    """What the tuner knows of any workload's settings, or of those of one workload besides."""
    own = COMMON.by_name if workload is None else _own(workload)
    heading = "| setting | changes speed | changes the result | changes memory | note |"
    return "\n".join([heading, "| --- | --- | --- | --- | --- |", *map(_known, own.values())])


def _own(workload: str) -> Mapping[str, KnownSetting]:
    """What is known of a workload's settings, and not of others', or better."""
    known = registry.known_settings(workload).by_name
    return {name: one for name, one in known.items() if COMMON.by_name.get(name) != one}


def _known(known: KnownSetting) -> str:
    speed = "yes" if known.moves_speed else "no"
    cells = (speed, _RESULT[known.moves_result], known.moves_memory, known.about)
    return f"| `{known.name}` | {' | '.join(cells)} |"


def findings() -> str:
    """The clinical findings that the trainer looks for, and their phrases."""
    rows = (f"| {name} | {phrases} |" for name, phrases in PHRASES.items())
    return "\n".join(["| finding | phrases |", "| --- | --- |", *rows])


def trainer_modules() -> str:
    """The first line of what each module of the trainer says of itself."""
    files = sorted(Path(r2gen.__path__[0]).glob("[!_]*.py"))
    return "\n".join(f"- `{file.name}`: {_first_line(file)}" for file in files)


def _first_line(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


MADE: Mapping[str, Callable[[], str]] = {
    "commands of autotune": commands,
    "commands of r2gen": trainer_commands,
    "search space": lambda: table("space"),
    "a command": command,
    "a knob": lambda: table("Distribution"),
    "a scaled learning rate": lambda: table("ScaledLearningRate"),
    "a kept effective batch": lambda: table("KeptBatch"),
    "a planned length": lambda: table("PlannedLength"),
    "limits": lambda: table("Limits"),
    "objective": lambda: table("Objective"),
    "budget": lambda: table("Budget"),
    "training": lambda: table("Training"),
    "known settings": known_settings,
    "known settings of r2gen": lambda: known_settings("r2gen"),
    "known settings of lightning": lambda: known_settings("lightning"),
    "known settings of transformers": lambda: known_settings("transformers"),
    "settings of r2gen": lambda: _table(Config.model_json_schema() | {"required": ()}),
    "clinical findings": findings,
    "modules of r2gen": trainer_modules,
}
