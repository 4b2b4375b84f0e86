"""HTML of generated reports: studies side by side, and the sheet for blind readers.

A sheet has neither model names nor scores, and orders reports by their ids, which reveal nothing about the
model. The page saves the answers itself; nothing is sent anywhere.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from r2gen.compared.answers import FORMAT, MARKS, id_of
from r2gen.compared.differences import marked
from r2gen.compared.entries import Shown
from r2gen.compared.pictures import picture
from r2gen.errors import printable

_SIDE_PX = 900  # image size on a sheet: large enough to check the report's findings


def sheet(studies: Sequence[Shown]) -> str:
    """Returns the whole page. Unreadable images are marked as such."""
    script = _asset("sheet.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("sheet.html.j2")
        .render(
            items=[(shown.study, texts(shown)) for shown in studies],
            kinds=MARKS,
            format=FORMAT,
            script=script,
            style=_asset("sheet.css"),
            policy=f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
            "img-src data:; base-uri 'none'; form-action 'none'",
            pictures={file: picture(file, _SIDE_PX) for shown in studies for file in shown.study.images},
        )
    )


def texts(shown: Shown) -> dict[str, str]:
    """Returns a study's distinct reports by id, in the order of the ids."""
    distinct = {entry.report for entry in shown.written.values()}
    return dict(sorted((id_of(shown.study.id, text), text) for text in distinct))


def side_by_side(studies: Sequence[Shown]) -> str:
    """Returns the studies with the report of every model, differences from the reference marked."""
    return (
        _environment()
        .get_template("studies.html.j2")
        .render(
            studies=studies,
            marked=marked,
            style=_asset("studies.css"),
            pictures={file: picture(file) for shown in studies for file in shown.study.images},
        )
    )


@cache
def _environment() -> Environment:
    """Returns the Jinja environment of this package's templates, with autoescaping."""
    return Environment(
        loader=PackageLoader("r2gen.compared"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )


def _finalize(value: Any) -> Any:
    """Strips external text of characters that change the writing direction."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _asset(name: str) -> Markup:
    """Returns a file next to the templates, unescaped because it is part of the package."""
    text = (resources.files("r2gen.compared") / "templates" / name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704
