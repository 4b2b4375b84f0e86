"""From studies to batches: images decoded and augmented in worker processes, reports as padded ids.

What a study looks like in an epoch depends on the seed, the epoch and the study alone, and on no worker.
"""

import math
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from r2gen.annotation import Study
from r2gen.config import Config
from r2gen.errors import BadImageError
from r2gen.tokenizer import Tokenizer

# ImageNet's statistics, which the visual extractor's weights were trained with.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


class Key(NamedTuple):
    """A study, and the epoch whose augmentation it gets; epoch None: none, as in evaluation."""

    epoch: int | None
    study: int


class Sample(NamedTuple):
    """`images` uint8 [V, S, S] and `ids`, or what is wrong with an image in `fault`."""

    study: int
    images: Tensor | None
    ids: list[int]
    fault: str | None


class Batch(NamedTuple):
    """`images` uint8 [B, V, S, S], `targets` int64 [B, T] padded with 0, and which studies they are."""

    images: Tensor
    targets: Tensor
    studies: Tensor
    faults: tuple[str, ...]


class ReportDataset(Dataset[Sample]):
    """Studies as samples. A corrupt image is a fault in its sample: the training process decides."""

    def __init__(self, studies: Sequence[Study], tokenizer: Tokenizer, config: Config) -> None:
        self._studies, self._config = studies, config
        self._ids = [_cut(tokenizer.encode(s.report), config) for s in studies]

    def __len__(self) -> int:
        return len(self._studies)

    def __getitem__(self, key: Key) -> Sample:
        study = self._studies[key.study]
        try:
            views = [_view(path, self._config, key, view) for view, path in enumerate(study.images)]
        except BadImageError as error:
            return Sample(key.study, None, [], f"study {study.id!r}: {error}")
        return Sample(key.study, torch.from_numpy(np.stack(views)), self._ids[key.study], None)


def _cut(ids: list[int], config: Config) -> list[int]:
    """At most `max_seq_length` of the `ids` of a report. Without its end no report teaches where to end."""
    whole = len(ids) <= config.max_seq_length or config.cut_reports == "run_on"
    return ids[: config.max_seq_length] if whole else [*ids[: config.max_seq_length - 1], ids[-1]]


def _view(path: Path, config: Config, key: Key, view: int) -> np.ndarray:
    """One image as uint8 [S, S]; in training, as in R2Gen, resized, cropped at random, often flipped."""
    size, image = config.image_size, _decoded(path)
    if key.epoch is None:
        return np.array(image.resize((size, size), Image.Resampling.BILINEAR))
    rng = random.Random(f"{config.seed} {key.epoch} {key.study} {view}")
    image = _resize_shorter_side(image, size * 256 // 224)
    left, top = rng.randint(0, image.width - size), rng.randint(0, image.height - size)
    pixels = np.array(image.crop((left, top, left + size, top + size)))
    return pixels[:, ::-1] if rng.random() < 0.5 else pixels


def _decoded(path: Path) -> Image.Image:
    try:
        with Image.open(path) as opened:
            return opened.convert("L")
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - broken files make Pillow raise whatever its parsers raise
        text = " ".join(str(error).split())
        raise BadImageError(f"image {path} cannot be decoded: {text or type(error).__name__}") from None


def _resize_shorter_side(image: Image.Image, size: int) -> Image.Image:
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    return image.resize((width, height), Image.Resampling.BILINEAR)


def collate(samples: Sequence[Sample]) -> Batch:
    """Samples as one batch, those with a fault left out of the tensors and named."""
    good = [(s, s.images) for s in samples if s.images is not None]
    longest = max((len(s.ids) for s, _ in good), default=0)
    targets = torch.zeros(len(good), longest, dtype=torch.long)
    for row, (sample, _) in enumerate(good):
        targets[row, : len(sample.ids)] = torch.tensor(sample.ids)
    images = torch.stack([images for _, images in good]) if good else torch.zeros(0, dtype=torch.uint8)
    studies = torch.tensor([s.study for s, _ in good], dtype=torch.long)
    return Batch(images, targets, studies, tuple(s.fault for s in samples if s.fault))


def normalise(images: Tensor) -> Tensor:
    """uint8 grey [B, V, S, S] as the extractor's float input [B, V, 3, S, S], on whatever device it lies."""
    grey = images.unsqueeze(2).to(torch.float32) / 255
    shape = (3, 1, 1)
    mean = torch.tensor(_MEAN, device=images.device).view(shape)
    std = torch.tensor(_STD, device=images.device).view(shape)
    return (grey - mean) / std


class TrainingSampler:
    """Micro-batches of an epoch's own permutation, from any of them on."""

    def __init__(self, studies: int, config: Config) -> None:
        self._studies, self._config = studies, config
        self.epoch, self.start = 1, 0

    def __len__(self) -> int:
        """Micro-batches of a whole epoch; the last one may be smaller."""
        return math.ceil(self._studies / self._config.micro_batch_size)

    def __iter__(self) -> Iterator[list[Key]]:
        size = self._config.micro_batch_size
        seed = random.Random(f"{self._config.seed} {self.epoch}").getrandbits(63)
        order = torch.randperm(self._studies, generator=torch.Generator().manual_seed(seed)).tolist()
        for first in range(self.start * size, self._studies, size):
            yield [Key(self.epoch, index) for index in order[first : first + size]]


class EvaluationSampler:
    """The first `limit` studies in order, in batches, without augmentation."""

    def __init__(self, studies: int, limit: int | None, batch_size: int) -> None:
        self._studies, self._batch_size = min(studies, limit or studies), batch_size

    def __iter__(self) -> Iterator[list[Key]]:
        for first in range(0, self._studies, self._batch_size):
            yield [Key(None, i) for i in range(first, min(first + self._batch_size, self._studies))]


def loader(
    dataset: ReportDataset, sampler: TrainingSampler | EvaluationSampler, config: Config, *, persistent: bool
) -> DataLoader[Batch]:
    """A loader of `sampler`'s batches. It draws nothing from torch's global random numbers."""
    workers = config.num_workers
    return DataLoader(
        dataset,  # type: ignore[arg-type]  # its keys are not plain integers
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=workers,
        prefetch_factor=config.prefetch_factor if workers else None,
        persistent_workers=persistent and workers > 0,
        pin_memory=config.pin_memory and torch.cuda.is_available(),
        generator=torch.Generator(),
        worker_init_fn=_leave_signals_to_the_trainer if workers else None,
    )


def _leave_signals_to_the_trainer(worker: int) -> None:  # noqa: ARG001 - the loader passes it
    """Ctrl-C and service managers signal every process, and the step that is under way needs its workers.

    They end when the training process does.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def usable(batch: Batch, config: Config) -> bool:
    """Whether anything of `batch` is left; raises BadImageError for a fault that is not to be skipped."""
    if batch.faults and not config.skip_bad_samples:
        raise BadImageError(f"{batch.faults[0]} (skip_bad_samples leaves it out)")
    return len(batch.studies) > 0
