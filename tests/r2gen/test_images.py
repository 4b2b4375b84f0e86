"""Decoded images are cached once, and are right whatever happens to the files."""

import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from r2gen import cache, images
from r2gen.errors import BadImageError
from r2gen.images import Decoded, Kept, Rendition
from tests.faults.sessions import small_disk

TRAINING, WHOLE = Rendition(36, crop=True), Rendition(32, crop=False)
PLENTY = 2**30


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache.directory()


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    rng, files = np.random.default_rng(0), []
    for number in range(5):
        files.append(tmp_path / f"{number}.png")
        _draw(files[-1], rng.integers(0, 256, (50 + number, 60), dtype=np.uint8))
    return files


def _draw(file: Path, pixels: np.ndarray) -> None:
    Image.fromarray(pixels).save(file)


def _entries(home: Path) -> list[Path]:
    return sorted(home.glob("images-*/"))


def _kinds(home: Path) -> set[str]:
    return {place.name.partition("-")[0] for place in home.iterdir()}


@pytest.mark.parametrize("rendition", [TRAINING, WHOLE])
def test_kept_pixels_are_the_decoded_ones(paths: list[Path], rendition: Rendition) -> None:
    decoded = Decoded(paths, rendition)
    for _ in range(2):
        kept = images.load(paths, rendition, PLENTY)
        assert isinstance(kept, Kept)
        assert all(np.array_equal(kept[i], decoded[i]) for i in range(len(paths)))
    assert min(kept[0].shape) == rendition.size


def test_another_process_maps_the_same_file(paths: list[Path]) -> None:
    kept = images.load(paths, WHOLE, PLENTY)
    sent = pickle.dumps(kept)
    assert len(sent) < 2000
    assert np.array_equal(pickle.loads(sent)[1], kept[1])


def test_only_its_owner_can_look_at_it(paths: list[Path], home: Path) -> None:
    images.load(paths, WHOLE, PLENTY)
    assert home.stat().st_mode & 0o077 == 0


def test_it_is_made_once_and_for_each_rendition(paths: list[Path], home: Path) -> None:
    images.load(paths, TRAINING, PLENTY)
    (place,) = _entries(home)
    made = place.stat().st_ino
    images.load(paths, TRAINING, PLENTY)
    assert [p.stat().st_ino for p in _entries(home)] == [made]
    images.load(paths, WHOLE, PLENTY)
    assert len(_entries(home)) == 2


def test_a_touched_file_is_known_and_a_changed_one_is_seen(paths: list[Path], home: Path) -> None:
    images.load(paths, WHOLE, PLENTY)
    os.utime(paths[1], ns=(1, 1))
    images.load(paths, WHOLE, PLENTY)
    assert len(_entries(home)) == 1
    white = np.full((51, 60), 255, np.uint8)
    _draw(paths[1], white)
    assert (images.load(paths, WHOLE, PLENTY)[1] == 255).all()
    assert len(_entries(home)) == 2
    before = paths[1].stat()
    _draw(paths[1], white - 1)
    os.utime(paths[1], ns=(before.st_atime_ns, before.st_mtime_ns))  # as after a copy that preserves times
    assert (images.load(paths, WHOLE, PLENTY)[1] == 254).all()


def test_a_copy_of_the_data_set_shares_the_cache(paths: list[Path], home: Path, tmp_path: Path) -> None:
    images.load(paths, WHOLE, PLENTY)
    (tmp_path / "copy").mkdir()
    images.load([Path(shutil.copy(path, tmp_path / "copy")) for path in paths], WHOLE, PLENTY)
    assert len(_entries(home)) == 1


def test_a_broken_image_is_named_and_the_others_are_cached(paths: list[Path]) -> None:
    paths[2].write_bytes(b"no image")
    kept = images.load(paths, WHOLE, PLENTY)
    with pytest.raises(BadImageError, match=r"2\.png cannot be decoded"):
        kept[2]
    assert np.array_equal(kept[3], Decoded(paths, WHOLE)[3])


def test_a_flipped_bit_is_never_shown(paths: list[Path], home: Path) -> None:
    images.load(paths, WHOLE, PLENTY)
    (place,) = _entries(home)
    data = place / "pixels.u8"
    spoilt = bytearray(data.read_bytes())
    spoilt[32 * 32 + 7] ^= 1
    data.write_bytes(spoilt)
    kept = images.load(paths, WHOLE, PLENTY)
    assert all(np.array_equal(kept[i], Decoded(paths, WHOLE)[i]) for i in range(len(paths)))
    assert not place.exists(), "it is made again by who comes next"
    assert isinstance(images.load(paths, WHOLE, PLENTY), Kept)


@pytest.mark.parametrize("file", ["pixels.u8", "index.json"])
def test_a_file_cut_short_is_made_again(paths: list[Path], home: Path, file: str) -> None:
    images.load(paths, WHOLE, PLENTY)
    (place,) = _entries(home)
    os.truncate(place / file, 100)
    kept = images.load(paths, WHOLE, PLENTY)
    assert isinstance(kept, Kept)
    assert np.array_equal(kept[4], Decoded(paths, WHOLE)[4])


def test_a_user_without_a_home_has_a_cache_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", _no_home)
    assert cache.directory().is_relative_to(tempfile.gettempdir())


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_images_that_do_not_fit_are_decoded_with_a_message(
    paths: list[Path], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(images.load(paths, TRAINING, 5 * 36 * 36), Decoded)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "image_cache_gib allows" in said
    assert not _entries(home)


def test_a_cache_that_cannot_be_written_is_done_without(
    paths: list[Path], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.parent.parent.mkdir(parents=True)
    home.parent.write_text("a file where the directory should be")
    assert isinstance(images.load(paths, WHOLE, PLENTY), Decoded)
    assert "cannot be written" in capsys.readouterr().err


def test_nothing_is_cached_if_the_cache_is_off(paths: list[Path], home: Path) -> None:
    assert isinstance(images.load(paths, WHOLE, 0), Decoded)
    assert not home.exists()


def test_the_least_recently_used_entry_makes_room(paths: list[Path], home: Path) -> None:
    size = 2 * 32 * 32 + 400
    first, second, third = (paths[i : i + 2] for i in (0, 1, 2))
    images.load(first, WHOLE, PLENTY)
    (oldest,) = _entries(home)
    os.utime(oldest, (1, 1))
    images.load(second, WHOLE, 2 * size)
    assert len(_entries(home)) == 2
    images.load(third, WHOLE, 2 * size)
    assert len(_entries(home)) == 2
    assert not oldest.exists()


def test_entries_in_use_are_not_evicted(
    paths: list[Path], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise two sets that do not fit together would be rebuilt again and again."""
    images.load(paths[:2], WHOLE, PLENTY)
    assert isinstance(images.load(paths[2:], WHOLE, 4 * 32 * 32), Decoded)
    assert "others in use" in capsys.readouterr().err
    assert len(_entries(home)) == 1


def test_a_disk_that_would_be_full_is_left_alone(
    paths: list[Path], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.parent.mkdir(parents=True)
    with small_disk(home.parent, "64m"):
        assert isinstance(images.load(paths, WHOLE, PLENTY), Decoded)
    assert f"{home} has" in capsys.readouterr().err


def test_what_a_killed_maker_of_something_else_left_is_removed(paths: list[Path], home: Path) -> None:
    left = home / "images-0123.making-x"
    left.mkdir(parents=True)
    images.load(paths, WHOLE, PLENTY)
    assert not left.exists()


def _load(paths: list[Path], home: str, seconds: float) -> None:
    os.environ["XDG_CACHE_HOME"] = home
    if seconds:
        render = Rendition.render

        def slowly(self: Rendition, path: Path) -> np.ndarray:
            time.sleep(seconds)
            return render(self, path)

        Rendition.render = slowly  # type: ignore[method-assign]
    made = images.load(paths, WHOLE, PLENTY)
    sys.exit(0 if isinstance(made, Kept) and made[0].shape == (32, 32) else 3)


def test_several_processes_make_it_once(paths: list[Path], home: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    together = [context.Process(target=_load, args=(paths, str(tmp_path / "cache"), 0.02)) for _ in range(3)]
    for process in together:
        process.start()
    for process in together:
        process.join(60)
    assert [process.exitcode for process in together] == [0, 0, 0]
    assert len(_entries(home)) == 1
    assert not list(home.glob("*.making-*"))


def test_a_maker_that_is_killed_leaves_nothing_that_counts(
    paths: list[Path], home: Path, tmp_path: Path
) -> None:
    maker = multiprocessing.get_context("fork").Process(
        target=_load, args=(paths, str(tmp_path / "cache"), 30)
    )
    maker.start()
    deadline = time.monotonic() + 120
    while not list(home.glob("*.making-*")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(maker.pid or 0, signal.SIGKILL)
    maker.join(30)
    assert isinstance(images.load(paths, WHOLE, PLENTY), Kept)
    assert not list(home.glob("*.making-*"))
