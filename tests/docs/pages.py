"""The documents as readers see them: their code blocks, inline code and links."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
SITE = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *SITE, ROOT / "examples" / "README.md"]
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_TITLE = re.compile(r'title="([^"]+)"')
_SNIPPET = re.compile(r'^--8<-- "([^"]+)"$', re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A code block; `title` names the file that it becomes, None for one to run or read."""

    page: str
    line: int
    language: str
    title: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def _tokens(page: Path) -> list[Token]:
    return _MARKDOWN.parse(page.read_text(encoding="utf-8"))


def blocks(page: Path) -> list[Block]:
    """The code blocks of `page`, the files that it shows filled in; indented ones have no language."""
    found = []
    for token in _tokens(page):
        if token.type in {"fence", "code_block"}:
            language, _, rest = token.info.partition(" ")
            title = _TITLE.search(rest)
            text = _SNIPPET.sub(lambda file: (ROOT / file[1]).read_text(encoding="utf-8"), token.content)
            line = token.map[0] + 1 if token.map else 0
            found.append(Block(name(page), line, language, title[1] if title else None, text))
    return found


def of_language(language: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.language == language]


def _inline(page: Path, kind: str) -> Iterator[Token]:
    for token in _tokens(page):
        yield from (child for child in token.children or () if child.type == kind)


def inline_code(page: Path) -> list[str]:
    return [token.content for token in _inline(page, "code_inline")]


def links(page: Path) -> list[str]:
    return [str(token.attrGet("href")) for token in _inline(page, "link_open")]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, as MkDocs and the usual hosts make them."""
    pairs = itertools.pairwise(_tokens(page))
    headings = [text.content for tag, text in pairs if tag.type == "heading_open"]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower()) for text in headings}
