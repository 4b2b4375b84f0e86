"""Every promise of docs/reliability.md names a test, and that test is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
# The tables of promises begin with this line; a campaign's figures have a table of another kind.
PROMISES = re.findall(r"^\| fault \|.*\n\| --- .*\n((?:\|.*\n)+)", DOCUMENT, re.MULTILINE)
ROWS = "".join(PROMISES).splitlines()
TEST = re.compile(r"`((?:\w+/)*test_\w+\.py)::(\w+)`")


def test_every_row_names_a_test():
    assert len(ROWS) > 30
    assert [row for row in ROWS if not TEST.search(row)] == []


def test_every_test_that_is_named_exists():
    missing = [f"{file}::{name}" for file, name in TEST.findall(DOCUMENT) if name not in named_in(file)]
    assert missing == []


def named_in(file):
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
