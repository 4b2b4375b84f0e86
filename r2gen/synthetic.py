"""A small data set of drawn chest X-rays whose reports say what was drawn: nobody's data, no download."""

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

_DEPTH = {"mild": 0.5, "moderate": 0.75, "large": 1.0}


@dataclass(frozen=True)
class Findings:
    """What a study shows. `None` is nothing; sides are the patient's."""

    enlarged_heart: bool
    effusion: tuple[str, str] | None  # side, size
    opacity: tuple[str, str] | None  # side, zone
    pneumothorax: str | None
    device: bool
    fracture: bool


def make(directory: Path, studies: Mapping[str, int], seed: int, size: int) -> Path:
    """A data set in R2Gen's layout, `studies` a split, images of `size` pixels; returns where it lies.

    It lies below `directory`, under a name that tells its contents, and is made only once. A run that is
    killed, or a second one at the same time, leaves no half-made set under that name.
    """
    counts = "-".join(f"{split}{count}" for split, count in studies.items())
    target = directory / f"v1-{counts}-{size}px-seed{seed}"
    if target.is_dir():
        return target
    directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=directory))
    try:
        _write(scratch, studies, seed, size)
        scratch.chmod(0o755)
        try:
            os.rename(scratch, target)  # noqa: PTH104 - fails, as it must, where another run was faster
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
            report = write_report(findings, rng)
            annotation[split].append({"id": name, "report": report, "image_path": paths, "split": split})
    (root / "annotation.json").write_text(json.dumps(annotation), encoding="utf-8")


def _draw_findings(rng: random.Random) -> Findings:
    side = rng.choice(("left", "right"))
    healthy = rng.random() < 0.35
    return Findings(
        enlarged_heart=not healthy and rng.random() < 0.4,
        effusion=(side, rng.choice(tuple(_DEPTH))) if not healthy and rng.random() < 0.4 else None,
        opacity=(rng.choice(("left", "right")), rng.choice(("upper", "lower")))
        if not healthy and rng.random() < 0.4
        else None,
        pneumothorax=side if not healthy and rng.random() < 0.15 else None,
        device=not healthy and rng.random() < 0.3,
        fracture=not healthy and rng.random() < 0.15,
    )


def write_report(findings: Findings, rng: random.Random) -> str:
    """The report of a study, in one of the ways in which a reader may put it."""
    sentences = [_heart(findings, rng), *_lungs(findings, rng), _pleura(findings, rng)]
    if findings.device:
        sentences.append(
            rng.choice(
                ("A pacemaker is seen over the left chest.", "There is a left sided pacemaker in place.")
            )
        )
    sentences.append(
        "There is a healed rib fracture on the right."
        if findings.fracture
        else rng.choice(("No acute bony abnormality.", "The visualized bones are intact."))
    )
    return " ".join(sentences)


def _heart(findings: Findings, rng: random.Random) -> str:
    if findings.enlarged_heart:
        return rng.choice(("The heart is enlarged.", "There is cardiomegaly."))
    return rng.choice(("The heart size is normal.", "The cardiac silhouette is within normal limits."))


def _lungs(findings: Findings, rng: random.Random) -> Sequence[str]:
    if findings.opacity:
        side, zone = findings.opacity
        return [
            rng.choice(
                (
                    f"There is a focal opacity in the {side} {zone} lobe.",
                    f"Airspace disease is seen in the {side} {zone} lobe.",
                )
            )
        ]
    return [rng.choice(("The lungs are clear.", "There is no focal consolidation."))]


def _pleura(findings: Findings, rng: random.Random) -> str:
    parts = []
    if findings.effusion:
        side, extent = findings.effusion
        parts.append(f"There is a {extent} {side} pleural effusion.")
    if findings.pneumothorax:
        parts.append(f"A {findings.pneumothorax} apical pneumothorax is present.")
    if not parts:
        return rng.choice(
            ("No pleural effusion or pneumothorax.", "There is no pneumothorax or pleural effusion.")
        )
    if not findings.pneumothorax:
        parts.append("There is no pneumothorax.")
    return " ".join(parts)


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
        """The picture as a detector sees it: a little blurred, noisy, and exposed a little differently."""
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
    reach = 0.19 if findings.enlarged_heart else 0.11
    film.ellipse((0.48 - reach / 2 + jitter, 0.5, 0.58 + reach + jitter, 0.82), 205)
    film.polygon([(0.05, 0.95), (0.27, 0.76), (0.5, 0.86), (0.73, 0.78), (0.95, 0.95)], 185)
    if findings.opacity:
        side, zone = findings.opacity
        x, y = (0.2 if side == "right" else 0.68), (0.22 if zone == "upper" else 0.55)
        film.ellipse((x, y, x + 0.16, y + 0.16), 165)
    if findings.effusion:
        side, extent = findings.effusion
        x, top = (0.1 if side == "right" else 0.68), 0.84 - 0.26 * _DEPTH[extent]
        film.polygon([(x, top), (x + 0.22, top + 0.06), (x + 0.22, 0.92), (x, 0.92)], 215)
    if findings.pneumothorax:
        x = 0.14 if findings.pneumothorax == "right" else 0.66
        film.ellipse((x, 0.1, x + 0.2, 0.26), 12)
    if findings.device:
        film.ellipse((0.74, 0.16, 0.86, 0.26), 250)
        film.line([(0.76, 0.24), (0.6, 0.4), (0.56, 0.7)], 250, 0.012)
    if findings.fracture:
        film.line([(0.1, 0.44), (0.16, 0.5)], 245, 0.03)
    return film.developed(rng)


def _lateral(findings: Findings, rng: random.Random, size: int) -> Image.Image:
    film = _Film(size, 140)
    film.ellipse((0.22, 0.1, 0.78, 0.88), 65)
    film.line([(0.8, 0.05), (0.76, 0.9)], 195, 0.09)
    reach = 0.34 if findings.enlarged_heart else 0.24
    film.ellipse((0.26, 0.5, 0.3 + reach, 0.82), 200)
    film.polygon([(0.18, 0.95), (0.45, 0.78), (0.8, 0.95)], 185)
    if findings.opacity:
        y = 0.24 if findings.opacity[1] == "upper" else 0.56
        film.ellipse((0.48, y, 0.64, y + 0.15), 160)
    if findings.effusion:
        top = 0.86 - 0.22 * _DEPTH[findings.effusion[1]]
        film.polygon([(0.62, top), (0.78, top - 0.04), (0.8, 0.94), (0.6, 0.94)], 215)
    if findings.device:
        film.ellipse((0.3, 0.16, 0.4, 0.26), 250)
    return film.developed(rng)
