"""HTML of what models wrote: studies side by side, and the sheet for readers who must not know the models.

A sheet has neither names nor scores. Its order is that of the ids, which say nothing of a model, and the page
saves the answers itself: nothing is sent anywhere.
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

_SIDE_PX = 900  # of an image on a sheet: a reader must be able to find what a report says


def sheet(studies: Sequence[Shown]) -> str:
    """Returns the whole page. An image that cannot be read is marked as such."""
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
    """Returns what was written for a study by id, in their order; what several models wrote once."""
    found = {entry.report for entry in shown.written.values()}
    return dict(sorted((id_of(shown.study.id, text), text) for text in found))


def side_by_side(studies: Sequence[Shown]) -> str:
    """Returns the studies with what every model wrote for them, differences from the reference marked."""
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
    """Returns what fills in the templates of this package, and escapes what it puts in."""
    return Environment(
        loader=PackageLoader("r2gen.compared"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )


def _shown(value: Any) -> Any:
    """Returns text from outside without what changes the direction of writing."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _asset(name: str) -> Markup:
    """Returns a file next to the templates, which needs no escaping: it is the package's own."""
    text = (resources.files("r2gen.compared") / "templates" / name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704
