"""Reads the options that argparse, click and HfArgumentParser define, from syntax trees."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from autotune.core.settings import Setting
from autotune.init import syntax
from autotune.init.options import Option
from autotune.init.sources import Source

_SWITCHES = {"store_true", "store_false"}
_NO_SETTINGS = {"help", "version", "store_const", "append", "append_const", "count"}
_OF_TRANSFORMERS = (
    Option("per_device_train_batch_size", "--per_device_train_batch_size {}", 8),
    Option("gradient_accumulation_steps", "--gradient_accumulation_steps {}", 1),
    Option("learning_rate", "--learning_rate {}", 5e-5),
    Option("max_steps", "--max_steps {}", -1),
    Option("warmup_steps", "--warmup_steps {}", 0),
    Option("eval_steps", "--eval_steps {}"),
    Option("bf16", "--bf16", False),
    Option("fp16", "--fp16", False),
    Option("gradient_checkpointing", "--gradient_checkpointing", False),
    Option("dataloader_num_workers", "--dataloader_num_workers {}", 0),
    Option("output_dir", "--output_dir {}", required=True),
    Option("seed", "--seed {}", 42),
)


def takes_arguments(sources: Iterable[Source]) -> bool:
    """Returns True if a command line is parsed, so that `--help` does not start a training."""
    parsers = ("ArgumentParser", "HfArgumentParser", "LightningCLI")
    return any(True for one in sources for _ in (*syntax.calls(one.tree, *parsers), *_click(one.tree)))


def is_transformers(sources: Iterable[Source]) -> bool:
    """Returns True if a parser takes the arguments of Transformers' `Trainer`."""
    return any("TrainingArguments" in _names(call) for s in sources for call in _hf_parsers(s.tree))


def options(sources: Sequence[Source]) -> list[Option]:
    """Returns every option of the parsers in `sources`, the first of each name."""
    collected = [one for source in sources for one in _of(source)]
    for call in (call for source in sources for call in _hf_parsers(source.tree)):
        collected += _of_dataclasses(_names(call), sources)
    if is_transformers(sources):
        collected += _OF_TRANSFORMERS
    return list({one.name: one for one in reversed(collected)}.values())[::-1]


def _of(source: Source) -> Iterator[Option]:
    changed = _changed_defaults(source.tree)
    for call in syntax.calls(source.tree, "add_argument"):
        if (option := _argument(call, changed)) is not None:
            yield option
    for call in _click(source.tree):
        if (option := _argument(call, {})) is not None:
            yield option


def _click(tree: ast.Module) -> Iterator[ast.Call]:
    return (call for call in syntax.calls(tree, "option") if syntax.dotted(call).startswith("click."))


def _changed_defaults(tree: ast.Module) -> dict[str, Any]:
    return {
        one.arg: syntax.value(one.value)
        for call in syntax.calls(tree, "set_defaults")
        for one in call.keywords
        if one.arg
    }


def _argument(call: ast.Call, changed: dict[str, Any]) -> Option | None:
    """Returns the option that `add_argument` or `click.option` defines; None if it is not a setting."""
    given = [name for arg in call.args if isinstance(name := syntax.value(arg), str)]
    action = syntax.value(syntax.keyword(call, "action"))
    is_flag = action in _SWITCHES or syntax.value(syntax.keyword(call, "is_flag")) is True
    if not given or action in _NO_SETTINGS or any("/" in name for name in given):
        return None
    flags = sorted((name for name in given if name.startswith("-")), key=len)
    spelled = next((name for name in given if name.startswith("--")), flags[-1] if flags else "")
    dest = syntax.value(syntax.keyword(call, "dest"))
    name = dest if isinstance(dest, str) else (spelled or given[0]).lstrip("-").replace("-", "_")
    default = changed.get(name, syntax.value(syntax.keyword(call, "default")))
    if action == "store_false":
        return None  # the setting that it turns off has another name, or none
    optional = syntax.value(syntax.keyword(call, "nargs")) in {"?", "*"}
    return Option(
        name=name,
        form=spelled if is_flag else f"{spelled} {{}}".lstrip(),
        value=False if is_flag else _scalar(default),
        choices=_choices(syntax.keyword(call, "choices") or syntax.keyword(call, "type")),
        required=syntax.value(syntax.keyword(call, "required")) is True or not (flags or optional),
        help=_text(syntax.keyword(call, "help")),
    )


def _scalar(value: Any) -> Setting:
    return value if isinstance(value, str | bool | int | float) else None


def _choices(node: ast.expr | None) -> tuple[Setting, ...]:
    """Returns the listed choices: argparse's directly, click's in a `Choice`."""
    if isinstance(node, ast.Call) and syntax.last(node) == "Choice" and node.args:
        node = node.args[0]
    values = syntax.value(node)
    return tuple(map(_scalar, values)) if isinstance(values, list | tuple | set) else ()


def _text(node: ast.expr | None) -> str:
    text = syntax.value(node)
    return " ".join(text.split()) if isinstance(text, str) else ""


def _hf_parsers(tree: ast.Module) -> Iterator[ast.Call]:
    return syntax.calls(tree, "HfArgumentParser", "TrlParser")


def _names(call: ast.Call) -> list[str]:
    """Returns the names of the classes in a parser's arguments."""
    return [syntax.last(node) for arg in call.args for node in ast.walk(arg) if syntax.last(node)]


def _of_dataclasses(names: Sequence[str], sources: Iterable[Source]) -> Iterator[Option]:
    """Yields an option for each field of the project's dataclasses with such `names`."""
    for node in (node for source in sources for node in ast.walk(source.tree)):
        if isinstance(node, ast.ClassDef) and node.name in names:
            for one in node.body:
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                    yield _field(one, one.target.id)


def _field(node: ast.AnnAssign, name: str) -> Option:
    given, metadata = node.value, None
    if isinstance(given, ast.Call) and syntax.last(given) == "field":
        metadata = syntax.value(syntax.keyword(given, "metadata"))
        has_default = any(one.arg in {"default", "default_factory"} for one in given.keywords)
        given = syntax.keyword(given, "default")
    else:
        has_default = given is not None
    help_text = metadata.get("help", "") if isinstance(metadata, dict) else ""
    return Option(name, f"--{name} {{}}", _scalar(syntax.value(given)), (), not has_default, str(help_text))
