import base64
import io
import os

import pytest
from PIL import Image

from r2gen.compared.pictures import picture


def shown(found):
    head, _, data = found.uri.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1"])
def test_an_image_becomes_a_small_jpeg(tmp_path, mode):
    Image.new(mode, (1200, 600)).save(tmp_path / "x.png")
    found = picture(str(tmp_path / "x.png"))
    assert shown(found).size == (found.width, found.height) == (320, 160)
    assert not found.missing


def test_sixteen_bits_are_brought_to_eight(tmp_path):
    """A 16-bit radiograph is neither black nor white."""
    Image.frombytes("I;16", (2, 1), b"\x00\x80\x00\x40").save(tmp_path / "x.png")
    left, right = shown(picture(str(tmp_path / "x.png"))).convert("L").tobytes()
    assert abs(left - 128) < 9
    assert abs(right - 64) < 9


def test_a_small_image_stays_as_it_is(tmp_path):
    Image.new("L", (20, 10)).save(tmp_path / "x.png")
    assert picture(str(tmp_path / "x.png")).width == 20


def test_an_unreadable_image_is_marked(tmp_path):
    (tmp_path / "none.png").write_text("no image")
    Image.new("L", (64, 64)).save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:60])
    os.mkfifo(tmp_path / "pipe.png")
    for name, missing in (
        ("none.png", "image cannot be read"),
        ("cut.png", "image cannot be read"),
        ("absent.png", "image not found"),
        ("pipe.png", "image not found"),
        ("\0", "image not found"),
    ):
        found = picture(str(tmp_path / name))
        assert (found.uri, found.missing) == ("", missing)
        assert found.name == f"{tmp_path.name}/{name}"
