"""The blind sheet: one HTML file in which a reader marks reports without knowing which model wrote them.

It has neither labels nor scores. The order is that of the ids, which only the session's key traces back to a
model, and the page saves the answers itself: nothing is sent anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from autotune.compare.blind import FORMAT, MARKS, id_of
from autotune.reports import images, page
from autotune.reports.model import Sample

_SIDE_PX = 900  # of an image: a reader must be able to find what a report says


@dataclass(frozen=True)
class Item:
    """A study, and the reports that are to be marked: their texts by id, in the order of the ids."""

    study: Sample
    reports: dict[str, str]


def items(samples: Sequence[Sample], key: bytes) -> list[Item]:
    """Every study with what models wrote for it, once where several wrote the same."""
    return [Item(sample, _reports(sample, key)) for sample in samples]


def _reports(sample: Sample, key: bytes) -> dict[str, str]:
    texts = {written.report for written in sample.written.values()}
    return dict(sorted((id_of(key, sample.id, text), text) for text in texts))


def render(found: Sequence[Item]) -> str:
    """The whole page. Reads the images of the studies; one that cannot be read is marked as such."""
    script = page.script_of(page.asset("sheet.js"))
    return (
        page.environment()
        .get_template("sheet.html.j2")
        .render(
            items=found,
            kinds=MARKS,
            format=FORMAT,
            script=script,
            style=Markup(page.asset("sheet.css")),  # noqa: S704 - the package's own
            policy=page.policy([script]),
            pictures={file: images.picture(file, _SIDE_PX) for item in found for file in item.study.images},
        )
    )
