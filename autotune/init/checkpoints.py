"""Guesses from the code how a script resumes from a checkpoint."""

import ast
import re
from collections.abc import Iterator, Sequence

from autotune.init import names, syntax
from autotune.init.options import Option
from autotune.init.sources import Source

_SAVING = ("save", "save_checkpoint", "save_on_master", "save_state", "join")
_FILE = re.compile(r"[\w.-]+\.(?:pt|pth|ckpt|tar|bin|pth\.tar|pt\.tar)")
_USUAL = re.compile(r"last|latest|current|checkpoint|ckpt", re.IGNORECASE)


def resuming(sources: Sequence[Source], options: Sequence[Option]) -> str | dict[str, str] | None:
    """Returns the value of `resume` for a search space; None if it cannot be derived."""
    file = next(
        iter(sorted(_saved(sources), key=lambda name: (_is_best(name), not _USUAL.search(name)))), None
    )
    if file is None:
        return None
    by_name = {one.key: one for one in options}
    option = next((by_name[name] for name in names.RESUME if name in by_name), None)
    if option is not None and option.is_switch:
        return {"file": f"{{workdir}}/{file}", "arguments": option.form}
    if option is not None:
        return option.form.replace("{}", f"{{workdir}}/{file}")
    for option in options:
        if any(_is_compared(source.tree, option.name) for source in sources):
            return {"file": f"{{workdir}}/{file}", "arguments": option.form.replace("{}", "resume")}
    return None


def _is_best(name: str) -> bool:
    return "best" in name.lower()


def _saved(sources: Sequence[Source]) -> Iterator[str]:
    """Yields constant names of files that are saved."""
    for source in sources:
        for call in syntax.calls(source.tree, *_SAVING):
            yield from (text for text in syntax.strings(call) if _FILE.fullmatch(text))


def _is_compared(tree: ast.AST, name: str) -> bool:
    """Returns True if the setting `name` is compared with the text `resume`."""
    compares = (node for node in ast.walk(tree) if isinstance(node, ast.Compare))
    return any(syntax.last(one.left) == name and "resume" in syntax.strings(one) for one in compares)
