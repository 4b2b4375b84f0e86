"""Options that `LightningCLI` derives from classes of the project, and those of the trainer."""

import ast
from collections.abc import Iterator, Sequence

from autotune.init import syntax
from autotune.init.options import Option
from autotune.init.sources import Source

_OF_TRAINER = (
    Option("trainer.accumulate_grad_batches", "--trainer.accumulate_grad_batches={}", 1),
    Option("trainer.precision", "--trainer.precision={}", "32-true"),
    Option("trainer.max_steps", "--trainer.max_steps={}", -1),
    Option("trainer.default_root_dir", "--trainer.default_root_dir={}"),
    Option("seed_everything", "--seed_everything={}", 0),
)
_PARTS = {"LightningModule": "model", "LightningDataModule": "data"}


def options(sources: Sequence[Source]) -> list[Option]:
    """Returns the options of a `LightningCLI`; none if the project has none."""
    if not any(True for source in sources for _ in syntax.calls(source.tree, "LightningCLI")):
        return []
    nodes = [node for source in sources for node in ast.walk(source.tree)]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    return [option for node in classes for option in _of_class(node)] + list(_OF_TRAINER)


def _of_class(node: ast.ClassDef) -> Iterator[Option]:
    """Yields the constructor arguments of a model or data module."""
    part = next((_PARTS[name] for base in node.bases if (name := syntax.last(base)) in _PARTS), None)
    makers = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    for maker in makers if part else ():
        named = maker.args.args[1:]
        defaults = [None] * (len(named) - len(maker.args.defaults)) + list(maker.args.defaults)
        for argument, default in zip(named, defaults[-len(named) :] if named else [], strict=True):
            value = syntax.value(default)
            scalar = value if isinstance(value, str | bool | int | float) else None
            yield Option(
                f"{part}.{argument.arg}", f"--{part}.{argument.arg}={{}}", scalar, (), default is None
            )
