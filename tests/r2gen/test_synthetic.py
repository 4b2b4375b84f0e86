"""The drawn data set is the same everywhere, complete or absent, and its reports match the drawings."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from r2gen.annotation import load_annotation
from r2gen.config import Config
from r2gen.findings import asserted
from r2gen.synthetic import Findings, _frontal, make, write_report

from .drawn_reports import REPORTS

STUDIES = {"train": 3, "val": 1, "test": 2}
HEALTHY = Findings(enlarged_heart=False, effusion=False, opacity=False, pneumothorax=False, device=False)
# The finding that each sentence asserts, by the labeller used for models.
ILL = {
    "enlarged_heart": "cardiomegaly",
    "effusion": "effusion",
    "opacity": "opacity",
    "pneumothorax": "pneumothorax",
    "device": "support device",
}


def _files(root: Path) -> dict[str, bytes]:
    return {str(f.relative_to(root)): f.read_bytes() for f in sorted(root.rglob("*")) if f.is_file()}


def test_a_seed_draws_the_same_and_another_seed_something_else(tmp_path: Path) -> None:
    one, same, other = (
        make(tmp_path / name, STUDIES, seed, 64) for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert _files(one) == _files(same)
    assert _files(one) != _files(other)


def test_a_study_does_not_depend_on_how_many_there_are(tmp_path: Path) -> None:
    few, many = make(tmp_path, STUDIES, 0, 64), make(tmp_path, {**STUDIES, "train": 5}, 0, 64)
    small, large = _files(few), _files(many)
    del small["annotation.json"]
    assert small.items() <= large.items()


def test_it_is_a_data_set_that_the_trainer_reads(tmp_path: Path, make_config: Callable[..., Config]) -> None:
    root = make(tmp_path, STUDIES, 0, 64)
    found = load_annotation(make_config(data=str(root)))
    assert {split: len(studies) for split, studies in found.splits.items()} == STUDIES
    assert found.skipped == 0
    for path in found.splits["train"][0].images:
        with Image.open(path) as image:
            assert (image.size, image.mode) == ((64, 64), "L")


def test_it_is_made_only_once(tmp_path: Path) -> None:
    assert _made(tmp_path) == _made(tmp_path)


class _Drawn(dict[str, int]):
    """The numbers of studies, which do something once they are about to be drawn."""

    def __init__(self, studies: dict[str, int], before_drawing: Callable[[], object]) -> None:
        super().__init__(studies)
        self._steps = iter([lambda: None, before_drawing])  # the first look is for the name

    def items(self) -> Any:
        next(self._steps)()
        return super().items()


def test_a_failed_run_leaves_nothing(tmp_path: Path) -> None:
    def cut_off() -> None:
        [scratch] = tmp_path.iterdir()
        (scratch / "images").mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, _Drawn(STUDIES, cut_off), 0, 64)
    assert list(tmp_path.iterdir()) == []


def test_a_faster_processs_set_is_used(tmp_path: Path) -> None:
    faster: dict[str, int] = {}
    root = make(tmp_path, _Drawn(STUDIES, lambda: faster.update(_made(tmp_path))), 0, 64)
    assert _made(tmp_path) == faster
    assert list(tmp_path.iterdir()) == [root]


def _made(directory: Path) -> dict[str, int]:
    """Makes the set, and returns the inodes of its files."""
    return {str(file): file.stat().st_ino for file in make(directory, STUDIES, 0, 64).rglob("*")}


@pytest.mark.parametrize("shown", list(product([False, True], repeat=5)), ids=str)
def test_a_report_asserts_exactly_the_drawn_findings(shown: tuple[bool, ...]) -> None:
    findings = Findings(*shown)
    told = {name for finding, name in ILL.items() if getattr(findings, finding)}
    assert set(asserted(write_report(findings))) == told


def test_no_two_studies_with_other_findings_have_the_same_report() -> None:
    assert len(set(REPORTS)) == len(REPORTS) == 2**5


@pytest.mark.parametrize("finding", ILL)
def test_a_finding_changes_its_own_sentence_alone(finding: str) -> None:
    healthy, ill = (write_report(f).split(". ") for f in (HEALTHY, replace(HEALTHY, **{finding: True})))
    assert sum(a != b for a, b in zip(healthy, ill, strict=True)) == 1


@pytest.mark.parametrize("finding", ILL)
@pytest.mark.parametrize("seed", range(2))
def test_every_finding_is_visible(finding: str, seed: int) -> None:
    """Differs by far more than noise in the frontal view, all else being equal."""
    ill = replace(HEALTHY, **{finding: True})
    healthy, drawn = (
        np.array(_frontal(findings, random.Random(seed), 96), dtype=int) for findings in (HEALTHY, ill)
    )
    assert np.abs(healthy - drawn).max() > 30


def test_the_report_of_a_study_matches_its_images(tmp_path: Path) -> None:
    """Studies with equal reports, drawn differently, are closer to each other than to the others."""
    root = make(tmp_path, {"train": 60, "val": 1, "test": 1}, 0, 64)
    studies = json.loads((root / "annotation.json").read_text())["train"]
    pixels = [np.asarray(Image.open(root / "images" / s["image_path"][0]), dtype=float) for s in studies]
    apart: dict[bool, list[float]] = {True: [], False: []}
    for (one, a), (other, b) in combinations(zip(studies, pixels, strict=True), 2):
        apart[one["report"] == other["report"]].append(float(np.abs(a - b).mean()))
    assert np.mean(apart[True]) < np.mean(apart[False])
