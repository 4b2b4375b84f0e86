"""The Lightning examples: what they train, and that a search's arguments reach it."""

import importlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_examples import EXAMPLES, one_trial

# Looked for and not imported: collecting the tests would wait for it.
_LACKING = [
    name
    for name in ("lightning", "xarray", "h5netcdf", "h5py", "pyarrow")
    if importlib.util.find_spec(name) is None
]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_LACKING), reason=f"needs {', '.join(_LACKING)}")]


def example(name: str, place: Path) -> Path:
    """A copy of the example with its data."""
    copy = shutil.copytree(EXAMPLES / name, place / name, ignore=shutil.ignore_patterns("data", "runs"))
    subprocess.run([sys.executable, "make_data.py"], cwd=copy, check=True)
    return copy


@pytest.fixture
def imported(monkeypatch):
    """The `train` module of an example."""

    def load(directory: Path):
        monkeypatch.syspath_prepend(directory)
        return importlib.import_module("train")

    yield load
    sys.modules.pop("train", None)


@pytest.fixture(scope="module")
def sst(tmp_path_factory):
    return example("sst_lightning", tmp_path_factory.mktemp("examples"))


@pytest.fixture(scope="module")
def vae(tmp_path_factory):
    return example("sequence_vae_lightning", tmp_path_factory.mktemp("examples"))


@pytest.mark.soak
def test_a_trial_forecasts_the_sea_better_than_persistence(sst, imported, tmp_path):
    """Although its loader has arguments that only one with workers takes."""
    train = imported(sst)
    naive = train.naive_rmse(train.MonthlyMaps(train.DATA))
    wanted = {"micro_batch_size": 32, "loader.persistent_workers": True, "prefetch_factor": 4}
    found = one_trial(sst / "space.yaml", 1752, tmp_path, **wanted)
    assert naive["persistence"] < naive["climatology"]
    assert -found.curve[-1].quality < 0.95 * naive["persistence"]
    assert found.throughput.samples_per_s > 0


@pytest.mark.soak
def test_a_trial_of_sequences_learns_more_than_which_symbols_follow_each_other(vae, imported, tmp_path):
    train = imported(vae)
    naive = train.naive_nll(train.read("val", train.LONGEST))
    wanted = {"micro_batch_size": 32, "data.padding": "longest", "data.bucketing": True}
    found = one_trial(vae / "space.yaml", 3000, tmp_path, **wanted)
    assert naive["bigram"] < naive["unigram"]
    assert -found.curve[-1].quality < naive["bigram"]


def test_every_length_is_trained_with_and_one_is_validated_on(vae, imported):
    train = imported(vae)
    settings = {"batch_size": 8, "padding": "full", "bucketing": False, "workers": 0}
    short, whole = (train.Sequences(**settings, max_length=length) for length in (12, train.LONGEST))
    assert {batch.shape[1] for batch in short.train_dataloader()} == {12}
    assert {batch.shape[1] for batch in whole.train_dataloader()} == {train.LONGEST}
    pairs = zip(short.val_dataloader(), whole.val_dataloader(), strict=True)
    assert all(a.equal(b) for a, b in pairs)


def test_buckets_hold_similar_lengths_and_every_sequence_once(vae, imported):
    train = imported(vae)
    settings = {"batch_size": 16, "max_length": train.LONGEST, "padding": "longest", "workers": 0}
    mixed, alike = (train.Sequences(**settings, bucketing=value) for value in (False, True))
    indices = [index for batch in train.Buckets(alike.lengths, 16) for index in batch]
    assert sorted(indices) == list(range(len(alike.training)))
    padded = [sum(batch.numel() for batch in data.train_dataloader()) for data in (mixed, alike)]
    assert padded[1] < 0.75 * padded[0]
    assert all(data.padded(data.training[:3]).shape[1] <= train.LONGEST for data in (mixed, alike))
