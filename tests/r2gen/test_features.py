"""A frozen visual extractor does not change, and runs once per image."""

import os
import shutil
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from r2gen import cache, checkpoint
from r2gen.__main__ import main
from r2gen.errors import BadImageError
from r2gen.train import fit
from tests import forked
from tests.r2gen.faults import change_models, cut_short

Records = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def home(without_java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache.directory()


@pytest.fixture
def frozen(tiny: dict[str, Any]) -> dict[str, Any]:
    return {**tiny, "freeze_visual": True}


def _losses(records: Any) -> list[float]:
    return [record["train_loss"] for record in records if "train_loss" in record]


def _extractor(workdir: Path) -> dict[str, torch.Tensor]:
    state = checkpoint.load(workdir / "last.pt")["model"]
    return {name: value for name, value in state.items() if name.startswith("visual_extractor.")}


def test_the_extractor_keeps_weights_and_statistics_while_the_rest_learns(
    frozen: dict[str, Any], tmp_path: Path
) -> None:
    records = fit(frozen, tmp_path / "run")
    first = next(records)
    records.close()
    before = _extractor(tmp_path / "run")
    losses = _losses(fit(frozen, tmp_path / "run"))
    after = _extractor(tmp_path / "run")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert losses[-1] < first["train_loss"]


def test_kept_features_train_as_the_extractor_itself_would(frozen: dict[str, Any], tmp_path: Path) -> None:
    kept = _losses(fit(frozen, tmp_path / "kept"))
    computed = _losses(fit({**frozen, "image_cache_gib": 0}, tmp_path / "computed"))
    assert kept == pytest.approx(computed, rel=1e-3)


def test_features_are_computed_once(
    frozen: dict[str, Any], tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(fit(frozen, tmp_path / "one"))
    assert len(list(home.glob("features-*/"))) == 2  # of the training and the validation split

    def refuse(*_: object) -> None:
        pytest.fail("features are computed again")

    change_models(monkeypatch, lambda model: model.visual_extractor.register_forward_pre_hook(refuse))
    list(fit(frozen, tmp_path / "two"))


def test_reports_with_measured_speed_use_no_cached_features(
    frozen: dict[str, Any], tmp_path: Path, home: Path
) -> None:
    """Otherwise the first model scored would compute them for all models with the same extractor."""
    list(fit(frozen, tmp_path / "run"))
    kept = set(home.glob("features-*/"))
    assert main(["evaluate", "--checkpoint", str(tmp_path / "run" / "best.pt"), "--split", "test"]) == 0
    assert set(home.glob("features-*/")) == kept


@pytest.mark.parametrize("file", ["features.npy", "checksum"])
def test_corrupt_features_are_computed_again(
    frozen: dict[str, Any], tmp_path: Path, home: Path, file: str
) -> None:
    expected = _losses(fit(frozen, tmp_path / "one"))
    for place in home.glob("features-*/"):
        whole = (place / file).read_bytes()
        (place / file).write_bytes(whole[:-8] + bytes(8))
    assert _losses(fit(frozen, tmp_path / "two")) == expected


def test_a_frozen_run_resumes_as_if_it_had_not_been_stopped(frozen: dict[str, Any], tmp_path: Path) -> None:
    straight = _losses(fit(frozen, tmp_path / "straight"))
    records = fit(frozen, tmp_path / "parts")
    begun = _losses(islice(records, 2))
    records.close()
    assert begun + _losses(fit(frozen, tmp_path / "parts")) == straight


def test_features_that_do_not_fit_are_computed_at_every_step(
    frozen: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    small = 1000 / 2**30
    assert _losses(fit({**frozen, "image_cache_gib": small}, tmp_path / "run"))
    assert "image_cache_gib allows" in capsys.readouterr().err
    assert not list(home.glob("features-*/"))


def test_a_broken_image_is_named_or_left_out(frozen: dict[str, Any], own_data: Path, tmp_path: Path) -> None:
    cut_short(own_data / "images" / "train-00004" / "1.png")
    settings = {**frozen, "data": str(own_data), "epochs": 1}
    with pytest.raises(BadImageError, match=r"1\.png cannot be decoded"):
        list(fit(settings, tmp_path / "named"))
    shutil.rmtree(tmp_path / "named")
    records = list(fit({**settings, "skip_bad_samples": True}, tmp_path / "left"))
    assert records[-1]["samples"] == 9


# Computes features on a disk with space for the images but not for the features.
FULL = """
import sys
from pathlib import Path
from r2gen import cache, train
cache._RESERVE_BYTES = 0
settings = eval(sys.argv[1])
train.OptionalMeteor.score = lambda *_: {}
print(len([r for r in train.fit(settings, Path(sys.argv[2])) if "train_loss" in r]))
"""


def test_a_full_disk_is_reported_and_training_continues(frozen: dict[str, Any], tmp_path: Path) -> None:
    """A mapped file without disk space would end the process with a bus error."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "test", place], check=False)
    if mounted.returncode:
        pytest.skip("may not mount a file system")
    try:
        (place / "ballast").write_bytes(bytes(150_000))
        given, environment = (repr(frozen), tmp_path / "run"), {**os.environ, "XDG_CACHE_HOME": str(place)}
        done = forked.run(given, tmp_path, environment, script=FULL, warm="trainer")
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "6"
    assert "not cached" in done.stderr
