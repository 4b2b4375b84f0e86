"""Images of studies as small pictures, embedded into a page."""

import base64
import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

_SIDE_PX, _JPEG_QUALITY = 320, 78


@dataclass(frozen=True)
class Picture:
    """A small JPEG of an image file."""

    name: str  # the end of the path: the rest would reveal the user's directories
    uri: str = ""  # data URI; empty if the image cannot be read
    width: int = 0
    height: int = 0
    missing: str = ""  # the reason if it cannot be read


def picture(file: str, side_px: int = _SIDE_PX) -> Picture:
    """Returns the image in `file`, scaled down to at most `side_px` pixels wide and high."""
    path = Path(file)
    name = "/".join(path.parts[-2:])
    try:
        if not path.is_file():
            return Picture(name, missing="image not found")
        with Image.open(path) as opened:
            opened.draft("RGB", (side_px, side_px))  # decodes a JPEG at that size, in far less time
            image = _in_eight_bits(opened)
        image.thumbnail((side_px, side_px))
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=_JPEG_QUALITY, optimize=True)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return Picture(name, missing="image cannot be read")
    encoded = base64.b64encode(stream.getvalue()).decode("ascii")
    return Picture(name, f"data:image/jpeg;base64,{encoded}", image.width, image.height)


def _in_eight_bits(image: Image.Image) -> Image.Image:
    """Converts to 8-bit grey or colour. Pillow's direct conversion clips 16-bit images to white."""
    if image.mode.startswith("I"):
        return image.point(lambda value: value * (1 / 256)).convert("L")
    return image.convert("L" if image.mode in {"1", "L"} else "RGB")
