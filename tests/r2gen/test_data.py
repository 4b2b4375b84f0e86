"""Batches do not depend on the worker or on the start within an epoch; broken images are named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from r2gen.annotation import load_annotation
from r2gen.config import Config
from r2gen.data import (
    Batch,
    EvaluationSampler,
    Key,
    ReportDataset,
    TrainingSampler,
    loader,
    normalise,
    require_shared_memory,
    usable,
)
from r2gen.errors import BadImageError, InputError
from r2gen.model import loss_sum
from r2gen.packing import lengths
from r2gen.tokenizer import Tokenizer
from tests.r2gen.faults import cut_short, pretend_size

Make = Callable[..., Config]


def _dataset(config: Config, *, training: bool = True) -> ReportDataset:
    studies = load_annotation(config).splits["train"]
    reports = (study.report for study in studies)
    tokenizer = Tokenizer.from_reports(reports, config.dataset, 1)
    return ReportDataset(studies, tokenizer, config, training=training)


def _epochs(config: Config, *, epochs: tuple[int, ...] = (1, 2), start: int = 0) -> list[Batch]:
    dataset = _dataset(config)
    sampler = TrainingSampler(len(dataset), config)
    batches = loader(dataset, sampler, config, persistent=True)
    found = []
    for epoch in epochs:
        sampler.epoch, sampler.start = epoch, start
        found += list(batches)
    return found


def _is_same(one: Batch, other: Batch) -> bool:
    return one.faults == other.faults and all(
        torch.equal(a, b) for a, b in zip(one[:3], other[:3], strict=True)
    )


@pytest.mark.parametrize(("compile_", "is_pinned"), [("off", True), ("cuda-graphs", False)])
def test_batches_are_pinned_unless_graphs_are_recorded(
    make_config: Make, monkeypatch: pytest.MonkeyPatch, compile_: str, is_pinned: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    config = make_config(compile=compile_)
    dataset = _dataset(config)
    assert (
        loader(dataset, TrainingSampler(len(dataset), config), config, persistent=True).pin_memory
        is is_pinned
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_batches_do_not_depend_on_the_workers(make_config: Make, workers: int) -> None:
    alone = _epochs(make_config(num_workers=0))
    by_workers = _epochs(make_config(num_workers=workers, prefetch_factor=1))

    assert len(alone) == len(by_workers) == 6
    assert all(map(_is_same, alone, by_workers))


def test_an_epoch_has_every_study_once_and_a_smaller_last_batch(make_config: Make) -> None:
    batches = _epochs(make_config(), epochs=(1,))

    assert [len(batch.studies) for batch in batches] == [4, 4, 2]
    assert sorted(torch.cat([batch.studies for batch in batches]).tolist()) == list(range(10))


def test_another_epoch_or_seed_has_another_order(make_config: Make) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        batches = _epochs(make_config(seed=seed), epochs=(epoch,))
        return torch.cat([batch.studies for batch in batches]).tolist()

    assert len({tuple(order(*which)) for which in ((1, 1), (1, 2), (2, 1), (2, 2))}) == 4
    assert order(1, 2) == order(1, 2)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_can_be_entered_in_its_middle(make_config: Make, workers: int) -> None:
    config = make_config(num_workers=workers)

    late = _epochs(config, epochs=(2,), start=1)

    assert len(late) == 2
    assert all(map(_is_same, late, _epochs(config, epochs=(2,))[1:]))


def test_a_study_is_augmented_differently_in_every_epoch_but_always_the_same_in_one(
    make_config: Make,
) -> None:
    dataset, plain = _dataset(make_config()), _dataset(make_config(), training=False)

    def images(epoch: int, study: int = 3) -> Any:
        return dataset[Key(epoch, study)].images

    assert torch.equal(images(1), images(1))
    assert not torch.equal(images(1), images(2))
    assert not torch.equal(plain[Key(1, 3)].images, images(1))
    assert torch.equal(plain[Key(1, 3)].images, plain[Key(2, 3)].images)


def test_augmentation_is_a_crop_of_a_view_or_its_mirror_image(make_config: Make, own_data: Path) -> None:
    """A horizontal ramp stays one, and is reversed in some epochs."""
    file = own_data / "images" / "train-00000" / "0.png"
    ramp = np.broadcast_to(np.linspace(0, 255, 60, dtype=np.uint8), (50, 60))
    Image.fromarray(np.ascontiguousarray(ramp)).save(file)
    dataset = _dataset(make_config(data=own_data))

    rises = []
    for epoch in range(1, 21):
        images = dataset[Key(epoch, 0)].images
        steps = images[0, 0].int().diff(dim=1)
        assert steps.ge(0).all() or steps.le(0).all()
        rises.append(bool(steps.sum() > 0))
    assert 3 < sum(rises) < 17


def test_without_flips_a_view_is_never_mirrored_and_cropped_all_the_same(make_config: Make) -> None:
    plain, flipping = (_dataset(make_config(random_flip=flip)) for flip in (False, True))
    pairs = [(plain[Key(n, 1)].images[0], flipping[Key(n, 1)].images[0]) for n in range(1, 9)]
    views = [(one, other) for images in pairs for one, other in zip(*images, strict=True)]
    mirrored = [not torch.equal(one, other) for one, other in views]
    assert 0 < sum(mirrored) < len(views)
    assert all(torch.equal(one.flip(1), other) for (one, other), m in zip(views, mirrored, strict=True) if m)


def test_evaluation_takes_the_first_studies_by_length_as_they_are(make_config: Make) -> None:
    config = make_config()
    dataset = _dataset(config, training=False)
    lengths = [3, 9, 4, 4, 12, 99]

    batches = list(loader(dataset, EvaluationSampler(lengths, 5, 3), config, persistent=False))

    assert [batch.studies.tolist() for batch in batches] == [[4, 1, 2], [3, 0]]
    assert torch.equal(batches[1].images[1:], dataset[Key(0, 0)].images)


@pytest.mark.parametrize("cut", ["end", "run_on"])
def test_reports_are_cut_and_padded_with_zeros(make_config: Make, cut: str) -> None:
    whole = _dataset(make_config(max_seq_length=200))[Key(1, 0)].targets[0].tolist()
    dataset = _dataset(make_config(max_seq_length=6, cut_reports=cut))
    dataset.ids[1] = [0, 7, 0]

    batch = dataset.__getitems__([Key(1, 0), Key(1, 1)])

    assert batch.targets.shape == (2, 6)
    assert batch.targets[1].tolist() == [0, 7, 0, 0, 0, 0]
    assert batch.targets[0].tolist() == [*whole[:5], 0 if cut == "end" else whole[5]]
    log_probs = torch.full((2, 5, max(whole) + 1), -1.0)
    assert loss_sum(log_probs, batch.targets).item() == 7  # five of the cut report, and a word and an end
    assert lengths(batch.targets) == [5, 2]


@pytest.mark.parametrize("cut", ["end", "run_on"])
def test_a_report_that_fits_exactly_is_left_whole(make_config: Make, cut: str) -> None:
    whole = _dataset(make_config(max_seq_length=200))[Key(1, 0)].targets[0].tolist()
    fitting = _dataset(make_config(max_seq_length=len(whole), cut_reports=cut))
    assert fitting[Key(1, 0)].targets[0].tolist() == whole


def test_normalising_gives_three_equal_channels_in_imagenets_scale() -> None:
    images = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)

    found = normalise(images)

    assert found.shape == (1, 1, 3, 1, 2)
    assert found[0, 0, 0, 0].tolist() == pytest.approx([-0.485 / 0.229, 0.515 / 0.229])
    assert found[0, 0, 2, 0].tolist() == pytest.approx([-0.406 / 0.225, 0.594 / 0.225])


@pytest.mark.parametrize("workers", [0, 1])
def test_loading_draws_nothing_from_the_global_random_numbers(make_config: Make, workers: int) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()

    _epochs(make_config(num_workers=workers), epochs=(1,))

    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_truncated_image_is_named_by_the_training_process(
    make_config: Make, own_data: Path, workers: int
) -> None:
    file = own_data / "images" / "train-00004" / "1.png"
    cut_short(file)
    config = make_config(data=own_data, num_workers=workers)

    batches = _epochs(config, epochs=(1,))

    (fault,) = (fault for batch in batches for fault in batch.faults)
    assert f"study 'train-00004': image {file} cannot be decoded" in fault
    with pytest.raises(BadImageError, match=r"1\.png cannot be decoded.*skip_bad_samples"):
        [usable(batch, config) for batch in batches]
    assert all(usable(batch, make_config(skip_bad_samples=True)) for batch in batches)
    assert sum(len(batch.studies) for batch in batches) == 9


def test_a_batch_of_nothing_but_faults_is_not_usable(make_config: Make, own_data: Path) -> None:
    cut_short(own_data / "images" / "train-00000" / "0.png")
    config = make_config(data=own_data, skip_bad_samples=True)

    batch = _dataset(config)[Key(1, 0)]

    assert not usable(batch, config)


def test_whatever_is_wrong_with_an_image_its_file_is_named(make_config: Make, own_data: Path) -> None:
    """Damaged in two hundred ways, an image is a sample or a fault, and never another error."""
    file = own_data / "images" / "train-00000" / "0.png"
    whole, rng = file.read_bytes(), np.random.default_rng(0)
    dataset = _dataset(make_config(data=own_data, image_cache_gib=0))
    faults = 0
    for _ in range(200):
        damaged = bytearray(whole)
        for position in rng.integers(8, len(whole), 4):
            damaged[position] = rng.integers(256)
        file.write_bytes(damaged)
        found = dataset[Key(1, 0)].faults
        faults += len(found)
        assert all(str(file) in fault for fault in found)
    assert faults > 20


def test_an_image_too_large_to_decode_is_a_fault(make_config: Make, own_data: Path) -> None:
    pretend_size(own_data / "images" / "train-00000" / "0.png", 20_000)

    batch = _dataset(make_config(data=own_data, image_cache_gib=0))[Key(1, 0)]

    assert "exceeds limit" in batch.faults[0]


def test_workers_that_do_not_fit_into_shared_memory_are_refused(make_config: Make) -> None:
    require_shared_memory(make_config(num_workers=2))
    require_shared_memory(make_config(num_workers=0, prefetch_factor=10**9))
    with pytest.raises(InputError, match=r"num_workers 64.*of /dev/shm.*--shm-size"):
        require_shared_memory(make_config(num_workers=64, prefetch_factor=10**9))
