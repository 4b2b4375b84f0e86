"""Mistakes in a data set are reported on one line with their place, before training starts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from r2gen.annotation import fingerprint, load_annotation
from r2gen.config import Config
from r2gen.errors import InputError

Make = Callable[..., Config]


def _spoil(data: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = data / "annotation.json"
    annotation = json.loads(file.read_text())
    change(annotation)
    file.write_text(json.dumps(annotation))


def _refusal(config: Config) -> str:
    with pytest.raises(InputError) as caught:
        load_annotation(config)
    text = str(caught.value)
    assert "\n" not in text
    assert str(config.data) in text
    return text


def test_gives_the_studies_of_every_split_with_their_images_in_order(make_config: Make, drawn: Path) -> None:
    annotation = load_annotation(make_config())

    assert {split: len(studies) for split, studies in annotation.splits.items()} == {
        "train": 10,
        "val": 4,
        "test": 3,
    }
    study = annotation.splits["val"][1]
    assert study.id == "val-00001"
    assert study.images == tuple(drawn / "images" / "val-00001" / f"{view}.png" for view in range(2))
    assert annotation.skipped == 0


def test_one_view_is_taken_for_mimic_cxr(make_config: Make) -> None:
    annotation = load_annotation(make_config(dataset="mimic_cxr"))

    assert [len(study.images) for study in annotation.splits["train"]] == [1] * 10


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file"),
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON in UTF-8"),
        (b"[]", "must be an object with the lists train, val and test, got list"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"train": [], "val": []}', "test is missing"),
        (b'{"train": [], "val": {}, "test": []}', "val is dict"),
        (b'{"train": [], "val": [], "test": []}', "the split train has no usable study"),
    ],
)
def test_an_unusable_annotation_file_is_named(
    make_config: Make, tmp_path: Path, content: bytes | None, told: str
) -> None:
    if content is not None:
        (tmp_path / "annotation.json").write_bytes(content)

    assert told in _refusal(make_config(data=tmp_path))


def _set(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda annotation: annotation["train"][2].update({key: value})


BAD_STUDIES = [
    pytest.param(_set("report", " . , "), "its report has no words", id="no words"),
    pytest.param(_set("report", None), "its report has no words", id="no report"),
    pytest.param(_set("report", ["a"]), "its report has no words", id="report is a list"),
    pytest.param(_set("image_path", None), "must be a list of paths, got missing", id="no paths"),
    pytest.param(_set("image_path", "a.png"), "must be a list of paths, got str", id="one path, no list"),
    pytest.param(_set("image_path", [1, 2]), "must be a list of paths", id="paths are numbers"),
    pytest.param(_set("image_path", ["train-00002/0.png"]), "needs 2 images, got 1", id="one view"),
    pytest.param(_set("image_path", ["train-00002/0.png", "x.png"]), "'x.png' is not there", id="missing"),
    pytest.param(_set("image_path", ["train-00002", "x.png"]), "'train-00002' is not there", id="directory"),
    pytest.param(_set("image_path", ["../annotation.json"] * 2), "lies outside", id="dots"),
    pytest.param(_set("image_path", ["/etc/passwd"] * 2), "lies outside", id="absolute"),
    pytest.param(_set("image_path", ["a\0b"] * 2), "cannot be read: ", id="null byte"),
    pytest.param(
        _set("image_path", ["x" * 5000] * 2), "cannot be read: File name too long", id="name too long"
    ),
]


@pytest.mark.parametrize(("change", "told"), BAD_STUDIES)
def test_a_bad_study_is_refused_by_name(
    make_config: Make, own_data: Path, change: Callable[[dict[str, Any]], None], told: str
) -> None:
    _spoil(own_data, change)

    text = _refusal(make_config(data=own_data))

    assert "train study 'train-00002'" in text
    assert told in text


@pytest.mark.parametrize(("change", "told"), BAD_STUDIES)
def test_a_bad_study_is_left_out_and_counted_if_configured(
    make_config: Make, own_data: Path, change: Callable[[dict[str, Any]], None], told: str
) -> None:
    _spoil(own_data, change)

    annotation = load_annotation(make_config(data=own_data, skip_bad_samples=True))

    assert "train-00002" not in [study.id for study in annotation.splits["train"]]
    assert len(annotation.splits["train"]) == 9
    assert annotation.skipped == 1


def test_an_entry_that_is_no_object_is_named_by_its_position(make_config: Make, own_data: Path) -> None:
    _spoil(own_data, lambda annotation: annotation["val"].insert(1, "study"))

    assert "val study number 1: must be an object, got str" in _refusal(make_config(data=own_data))


def test_a_file_that_is_no_image_is_refused(make_config: Make, own_data: Path) -> None:
    (own_data / "images" / "test-00000" / "1.png").write_text("see attachment")

    assert "image 'test-00000/1.png' is not an image" in _refusal(make_config(data=own_data))


def test_a_link_out_of_the_data_set_is_refused(make_config: Make, own_data: Path, tmp_path: Path) -> None:
    image = own_data / "images" / "train-00000" / "0.png"
    image.rename(tmp_path / "elsewhere.png")
    image.symlink_to(tmp_path / "elsewhere.png")

    assert "lies outside" in _refusal(make_config(data=own_data))


def test_a_link_to_the_whole_images_directory_is_fine(
    make_config: Make, own_data: Path, tmp_path: Path
) -> None:
    (own_data / "images").rename(tmp_path / "elsewhere")
    (own_data / "images").symlink_to(tmp_path / "elsewhere")

    assert load_annotation(make_config(data=own_data)).skipped == 0


def test_many_bad_studies_are_counted_behind_the_first_three(make_config: Make, own_data: Path) -> None:
    def empty(annotation: dict[str, Any]) -> None:
        for study in annotation["train"]:
            study["report"] = ""

    _spoil(own_data, empty)

    text = _refusal(make_config(data=own_data))

    assert text.count("has no words") == 3
    assert "; and 7 more" in text


def test_leaving_out_every_study_of_a_split_is_refused(make_config: Make, own_data: Path) -> None:
    _spoil(own_data, lambda annotation: [study.pop("report") for study in annotation["test"]])

    text = _refusal(make_config(data=own_data, skip_bad_samples=True))

    assert "the split test has no usable study" in text


@pytest.mark.parametrize(
    ("weights", "told"), [("resnet.pht", "No such file or directory"), ("", "Is a directory")]
)
def test_weights_that_cannot_be_read_have_no_fingerprint(
    make_config: Make, tmp_path: Path, weights: str, told: str
) -> None:
    file = tmp_path / weights
    with pytest.raises(InputError) as caught:
        fingerprint(make_config(visual_weights=file))
    assert str(caught.value) == f"{file}: cannot be read: {told}"


def test_the_fingerprint_is_the_same_however_images_are_reached(
    make_config: Make, own_data: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(own_data)

    def by_link(annotation: dict[str, Any]) -> None:
        for study in (study for split in annotation.values() for study in split):
            study["image_path"] = [str(link / "images" / path) for path in study["image_path"]]

    _spoil(own_data, by_link)
    assert fingerprint(make_config(data=link)) == fingerprint(make_config(data=own_data))
