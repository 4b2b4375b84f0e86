"""Batches of studies: images decoded and augmented in worker processes, reports as padded ids.

The augmentation of a study depends only on the seed, the epoch and the study, not on the worker.
"""

import math
import multiprocessing
import random
import shutil
import signal
from collections.abc import Iterator, Sequence
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from r2gen import images
from r2gen.annotation import Study
from r2gen.config import Config
from r2gen.errors import BadImageError, InputError, LoaderError
from r2gen.host import uninterrupted
from r2gen.images import Images, Rendition
from r2gen.tokenizer import Tokenizer
from r2gen.visual import feature_count

_TIMED_OUT = "DataLoader timed out"  # the start of an error message without a type of its own
_ENDING_S = 5.0  # grace for a killed process to exit; one that waits for a disk takes longer
_SHM = Path("/dev/shm")  # noqa: S108 - measured, not written to

# ImageNet's statistics, which the visual extractor's weights were trained with.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


class Key(NamedTuple):
    """A study, and the epoch that determines its augmentation in training."""

    epoch: int
    study: int


class Batch(NamedTuple):
    """`images` uint8 [B, V, S, S], `targets` int64 [B, T] padded with 0, and the indices of the studies.

    With a frozen extractor `images` are its features, float16 [B, P, F].
    """

    images: Tensor
    targets: Tensor
    studies: Tensor
    faults: tuple[str, ...]


class ReportDataset(Dataset[Batch]):
    """Studies by batch. A corrupt image becomes a fault of its batch, which the training process handles.

    In training, as in R2Gen, images are cropped at random and, unless `random_flip` is off, flipped half of
    the time; otherwise they are shown whole.
    """

    def __init__(
        self, studies: Sequence[Study], tokenizer: Tokenizer, config: Config, *, training: bool
    ) -> None:
        self._studies, self._config, self._training = studies, config, training
        self.ids = [_cut(tokenizer.encode(s.report), config) for s in studies]
        self._images = load_images(studies, config, training=training)

    def __len__(self) -> int:
        return len(self._studies)

    def lengths(self) -> list[int]:
        """Counts the ids of each study's report."""
        return [len(ids) for ids in self.ids]

    def __getitem__(self, key: Key) -> Batch:
        return self.__getitems__([key])

    def __getitems__(self, keys: Sequence[Key]) -> Batch:
        """Returns the batch of `keys`; it names the studies with a fault, and its tensors leave them out."""
        size, views = self._config.image_size, self._config.views
        pixels = np.empty((len(keys), views, size, size), dtype=np.uint8)
        flipped = np.zeros((len(keys), views), dtype=bool)
        good: list[int] = []
        faults: list[str] = []
        for key in keys:
            try:
                for view in range(views):
                    flipped[len(good), view] = self._fill(pixels[len(good), view], key, view)
                good.append(key.study)
            except BadImageError as error:
                faults.append(f"study {self._studies[key.study].id!r}: {error}")
        pixels, flipped = pixels[: len(good)], flipped[: len(good)]
        pixels[flipped] = pixels[flipped, :, ::-1]
        targets = padded([self.ids[study] for study in good])
        return Batch(torch.from_numpy(pixels), targets, torch.tensor(good, dtype=torch.long), tuple(faults))

    def _fill(self, place: np.ndarray, key: Key, view: int) -> bool:
        """Writes a view of a study into `place` [S, S] and returns whether to flip it."""
        image = self._images[key.study * self._config.views + view]
        if not self._training:
            place[:] = image
            return False
        size = self._config.image_size
        rng = random.Random(f"{self._config.seed} {key.epoch} {key.study} {view}")
        left, top = rng.randint(0, image.shape[1] - size), rng.randint(0, image.shape[0] - size)
        place[:] = image[top : top + size, left : left + size]
        return self._config.random_flip and rng.random() < 0.5


def load_images(studies: Sequence[Study], config: Config, *, training: bool) -> Images:
    """Returns the images of `studies` in order from the cache, sized for cropping in training.

    A missing cache is created first.
    """
    size = config.image_size
    rendition = Rendition(size * 256 // 224, crop=True) if training else Rendition(size, crop=False)
    paths = [path for study in studies for path in study.images]
    return images.load(paths, rendition, config.image_cache_bytes)


def padded(ids: Sequence[Sequence[int]]) -> Tensor:
    """Returns ids as one tensor [B, T], padded with 0."""
    targets = torch.zeros(len(ids), max(map(len, ids), default=0), dtype=torch.long)
    for row, report in enumerate(ids):
        targets[row, : len(report)] = torch.tensor(report)
    return targets


def _cut(ids: list[int], config: Config) -> list[int]:
    """Truncates `ids` to `max_seq_length`, keeping the end token so that a model can learn to end."""
    fits = len(ids) <= config.max_seq_length or config.cut_reports == "run_on"
    return ids[: config.max_seq_length] if fits else [*ids[: config.max_seq_length - 1], ids[-1]]


def normalise(images: Tensor) -> Tensor:
    """Converts uint8 grey [B, V, S, S] to the extractor's float input [B, V, 3, S, S], on its device.

    Features of a frozen extractor [B, P, F] are only converted to float32.
    """
    if images.is_floating_point():
        return images.float()
    grey = images.unsqueeze(2).to(torch.float32) / 255
    mean, std = _statistics(images.device)
    return (grey - mean) / std


@cache
def _statistics(device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns ImageNet's means and deviations, each [3, 1, 1], cached on `device`: copying synchronises."""
    mean, std = (torch.tensor(values, device=device).view(3, 1, 1) for values in (_MEAN, _STD))
    return mean, std


class TrainingSampler:
    """Yields the micro-batches of an epoch's own permutation, starting from any of them."""

    def __init__(self, studies: int, config: Config) -> None:
        self._studies, self._config = studies, config
        self.epoch, self.start = 1, 0

    def __len__(self) -> int:
        """Counts the micro-batches of a whole epoch; the last one may be smaller."""
        return math.ceil(self._studies / self._config.micro_batch_size)

    def __iter__(self) -> Iterator[list[Key]]:
        size = self._config.micro_batch_size
        seed = random.Random(f"{self._config.seed} {self.epoch}").getrandbits(63)
        order = torch.randperm(self._studies, generator=torch.Generator().manual_seed(seed)).tolist()
        for first in range(self.start * size, self._studies, size):
            yield [Key(self.epoch, index) for index in order[first : first + size]]


class EvaluationSampler:
    """Yields the first `limit` studies in batches, the longest reports first.

    A batch takes as long as its longest report, so similar lengths go together; and a batch that does not fit
    into memory fails at once.
    """

    def __init__(self, lengths: Sequence[int], limit: int | None, batch_size: int) -> None:
        chosen = range(len(lengths))[:limit]
        self._studies = sorted(chosen, key=lambda study: lengths[study], reverse=True)
        self._batch_size = batch_size

    def __iter__(self) -> Iterator[list[Key]]:
        for first in range(0, len(self._studies), self._batch_size):
            yield [Key(0, study) for study in self._studies[first : first + self._batch_size]]


def loader(
    dataset: Dataset[Batch], sampler: TrainingSampler | EvaluationSampler, config: Config, *, persistent: bool
) -> DataLoader[Batch]:
    """Returns a loader of `sampler`'s batches that does not advance torch's global random state."""
    workers = config.num_workers
    if workers:
        _end_workers_at_exit()
    return DataLoader(
        dataset,
        batch_sampler=sampler,
        collate_fn=_as_it_is,  # type: ignore[arg-type]  # __getitems__ returns whole batches
        num_workers=workers,
        timeout=config.loader_timeout_s if workers else 0,
        prefetch_factor=config.prefetch_factor if workers else None,
        persistent_workers=persistent and workers > 0,
        # Pinning, by a thread of the loader, would break off the recording of CUDA graphs.
        pin_memory=config.pin_memory and config.compile == "off" and torch.cuda.is_available(),
        generator=torch.Generator(),
        worker_init_fn=_leave_signals_to_the_trainer if workers else None,
    )


def batches(source: DataLoader[Batch]) -> Iterator[Batch]:
    """Yields the batches of `source`; raises LoaderError if none arrives within the timeout."""
    try:
        yield from source
    except RuntimeError as error:
        if not str(error).startswith(_TIMED_OUT):
            raise
        _end_workers()
        raise LoaderError(
            f"loader_timeout_s {source.timeout:g}: the loader's processes delivered no batch for that long: "
            "check whether the disk hangs, raise loader_timeout_s, or set num_workers to 0"
        ) from None


@cache
def _end_workers_at_exit() -> None:
    """Kills workers at exit. Python would send SIGTERM, which they ignore, and wait for them forever."""
    Finalize(None, _end_workers, exitpriority=0)


def _end_workers() -> None:
    workers = [process for process in multiprocessing.active_children() if process.daemon]
    with uninterrupted():
        for process in workers:
            process.kill()
            process.join(_ENDING_S)


def _as_it_is(batch: Batch) -> Batch:
    return batch


def _leave_signals_to_the_trainer(worker: int) -> None:  # noqa: ARG001 - the loader passes it
    """Ignores SIGINT and SIGTERM, which Ctrl-C and service managers send to every process.

    The running step still needs its workers. They end with the training process.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def usable(batch: Batch, config: Config) -> bool:
    """Returns True if `batch` has a study left; raises BadImageError for a fault that may not be skipped."""
    if batch.faults and not config.skip_bad_samples:
        raise BadImageError(f"{batch.faults[0]} (skip_bad_samples leaves it out)")
    return len(batch.studies) > 0


def feature_bytes(config: Config) -> int:
    """Returns the bytes of a study's features from a frozen extractor, in float16."""
    patches = config.views * (config.image_size // 32) ** 2
    return 2 * patches * feature_count(config.visual_extractor)


def require_shared_memory(config: Config) -> None:
    """Raises InputError if the batches of the loaders' workers do not fit into /dev/shm.

    The training workers keep their batches there while the evaluation workers load theirs.
    """
    if not config.num_workers or not _SHM.is_dir():
        return
    pixels = config.views * config.image_size**2
    study = max(pixels, feature_bytes(config)) if config.freeze_visual else pixels
    ahead = config.num_workers * config.prefetch_factor
    studies = config.micro_batch_size * (ahead + config.accumulation_steps)
    needed = study * (studies + config.eval_batch_size * (ahead + 1))
    free = shutil.disk_usage(_SHM).free
    if needed > free:
        raise InputError(
            f"num_workers {config.num_workers}, prefetch_factor {config.prefetch_factor}: their batches take "
            f"{needed / 2**20:.0f} MiB of {_SHM}, where {free / 2**20:.0f} MiB are free: take fewer, or a "
            "smaller eval_batch_size, or give it more (docker: --shm-size)"
        )
