"""A small data set of drawn chest X-rays whose reports describe the drawing: no patient data, no download."""

import json
import os
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFilter


@dataclass(frozen=True)
class Findings:
    """The findings of a study.

    No finding has a side: training flips images at random, as R2Gen does, which would blur left and right.
    """

    enlarged_heart: bool
    effusion: bool
    opacity: bool
    pneumothorax: bool
    device: bool


def make(directory: Path, studies: Mapping[str, int], seed: int, size: int) -> Path:
    """Creates a data set in R2Gen's layout and returns its directory, which is a child of `directory`.

    `studies` is counted per split; images are `size` pixels wide and high. The name identifies the contents,
    and an existing set is reused. A killed or concurrent run leaves no incomplete set under that name.
    """
    counts = "-".join(f"{split}{count}" for split, count in studies.items())
    target = directory / f"v2-{counts}-{size}px-seed{seed}"
    if target.is_dir():
        return target
    directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=directory))
    try:
        _write(scratch, studies, seed, size)
        scratch.chmod(0o755)
        try:
            os.rename(scratch, target)  # noqa: PTH104 - must fail if another run was faster
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _write(root: Path, studies: Mapping[str, int], seed: int, size: int) -> None:
    annotation: dict[str, list[dict[str, Any]]] = {}
    for split, count in studies.items():
        annotation[split] = []
        for number in range(count):
            rng = random.Random(f"{seed} {split} {number}")
            name = f"{split}-{number:05d}"
            findings = _draw_findings(rng)
            paths = [f"{name}/{view}.png" for view in range(2)]
            (root / "images" / name).mkdir(parents=True)
            _frontal(findings, rng, size).save(root / "images" / paths[0])
            _lateral(findings, rng, size).save(root / "images" / paths[1])
            report = write_report(findings)
            annotation[split].append({"id": name, "report": report, "image_path": paths, "split": split})
    (root / "annotation.json").write_text(json.dumps(annotation), encoding="utf-8")


def _draw_findings(rng: random.Random) -> Findings:
    return Findings(
        enlarged_heart=rng.random() < 0.5,
        effusion=rng.random() < 0.5,
        opacity=rng.random() < 0.5,
        pneumothorax=rng.random() < 0.5,
        device=rng.random() < 0.5,
    )


def write_report(findings: Findings) -> str:
    """Returns the report. Every word follows from the findings, so a model can learn each of them."""
    sentences = (
        "The heart is enlarged." if findings.enlarged_heart else "Heart size is normal.",
        "There is a focal opacity." if findings.opacity else "The lungs are clear.",
        "A pleural effusion is seen." if findings.effusion else "No pleural effusion.",
        "There is a pneumothorax." if findings.pneumothorax else "No pneumothorax.",
        "A pacemaker is in place." if findings.device else "No support devices.",
    )
    return " ".join(sentences)


class _Film:
    """An image drawn in coordinates from 0 to 1, the patient's right on the viewer's left."""

    def __init__(self, size: int, background: int) -> None:
        self._size = size
        self.image = Image.new("L", (size, size), background)
        self._draw = ImageDraw.Draw(self.image)

    def ellipse(self, box: Sequence[float], grey: int) -> None:
        self._draw.ellipse([value * self._size for value in box], fill=grey)

    def polygon(self, points: Sequence[tuple[float, float]], grey: int) -> None:
        self._draw.polygon([(x * self._size, y * self._size) for x, y in points], fill=grey)

    def arc(self, box: Sequence[float], angles: tuple[int, int], grey: int, width: float = 0.012) -> None:
        scaled = [value * self._size for value in box]
        self._draw.arc(scaled, *angles, fill=grey, width=max(1, round(width * self._size)))

    def line(self, points: Sequence[tuple[float, float]], grey: int, width: float) -> None:
        scaled = [(x * self._size, y * self._size) for x, y in points]
        self._draw.line(scaled, fill=grey, width=max(1, round(width * self._size)))

    def developed(self, rng: random.Random) -> Image.Image:
        """Returns the image with a detector's slight blur, noise and change of exposure."""
        blurred = self.image.filter(ImageFilter.GaussianBlur(self._size / 100))
        noise = Image.frombytes("L", blurred.size, rng.randbytes(self._size**2))
        exposure = rng.uniform(0.92, 1.08)
        mixed = Image.blend(blurred, noise, 0.06)
        return mixed.point([min(255, int(value * exposure)) for value in range(256)])


def _frontal(findings: Findings, rng: random.Random, size: int) -> Image.Image:
    film = _Film(size, 150)
    jitter = rng.uniform(-0.015, 0.015)
    for left in (0.12, 0.54):  # the lungs
        film.ellipse((left + jitter, 0.12, left + 0.34 + jitter, 0.86), 55)
    for row in range(7):  # the ribs
        y = 0.14 + row * 0.1
        film.arc((0.06, y, 0.5, y + 0.2), (180, 330), 85)
        film.arc((0.5, y, 0.94, y + 0.2), (210, 360), 85)
    film.line([(0.5, 0.05), (0.5, 0.9)], 190, 0.07)  # the spine
    reach = 0.24 if findings.enlarged_heart else 0.11
    film.ellipse((0.48 - reach / 2 + jitter, 0.5, 0.58 + reach + jitter, 0.82), 205)
    film.polygon([(0.05, 0.95), (0.27, 0.76), (0.5, 0.86), (0.73, 0.78), (0.95, 0.95)], 185)
    side = rng.random() < 0.5
    if findings.opacity:
        x = 0.18 if side else 0.62
        film.ellipse((x, 0.28, x + 0.22, 0.5), 200)
    if findings.effusion:
        x, top = (0.66 if side else 0.1), 0.56
        film.polygon([(x, top), (x + 0.24, top + 0.04), (x + 0.24, 0.94), (x, 0.94)], 225)
    if findings.pneumothorax:
        x = 0.66 if side else 0.14
        film.ellipse((x, 0.08, x + 0.22, 0.3), 5)
    if findings.device:
        film.ellipse((0.74, 0.16, 0.88, 0.28), 255)
        film.line([(0.76, 0.24), (0.6, 0.4), (0.56, 0.7)], 255, 0.02)
    return film.developed(rng)


def _lateral(findings: Findings, rng: random.Random, size: int) -> Image.Image:
    film = _Film(size, 140)
    film.ellipse((0.22, 0.1, 0.78, 0.88), 65)
    film.line([(0.8, 0.05), (0.76, 0.9)], 195, 0.09)
    reach = 0.4 if findings.enlarged_heart else 0.24
    film.ellipse((0.26, 0.5, 0.3 + reach, 0.82), 200)
    film.polygon([(0.18, 0.95), (0.45, 0.78), (0.8, 0.95)], 185)
    if findings.opacity:
        film.ellipse((0.44, 0.28, 0.66, 0.48), 200)
    if findings.effusion:
        film.polygon([(0.6, 0.6), (0.8, 0.56), (0.82, 0.94), (0.58, 0.94)], 225)
    if findings.device:
        film.ellipse((0.3, 0.16, 0.4, 0.26), 250)
    return film.developed(rng)
