"""Features of a frozen visual extractor: computed once, cached, and read in place of images."""

import hashlib
import os
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from r2gen import cache, precision
from r2gen.annotation import Study
from r2gen.config import Config
from r2gen.data import (
    Batch,
    EvaluationSampler,
    Key,
    ReportDataset,
    batches,
    feature_bytes,
    loader,
    normalise,
    padded,
)
from r2gen.images import contents
from r2gen.model import R2Gen, halved, together
from r2gen.visual import VisualExtractor, folded

FORMAT = 1
_FEATURES, _CHECKSUM = "features.npy", "checksum"
_BLOCK_BYTES = 2**24


class FeatureDataset(Dataset[Batch]):
    """A ReportDataset whose batches have features [B, views * patches, features] in place of images."""

    def __init__(self, place: Path, images: ReportDataset) -> None:
        if _checksum(place / _FEATURES) != int((place / _CHECKSUM).read_text(encoding="ascii")):
            raise ValueError("the features are not those that were written")
        self._features = np.load(place / _FEATURES, mmap_mode="r", allow_pickle=False)
        self._place, self._images = place, images

    def __reduce__(self) -> tuple[Any, ...]:
        """Maps the same file in the other process, for workers that are not forked."""
        return FeatureDataset, (self._place, self._images)

    def __len__(self) -> int:
        return len(self._images)

    def __getitems__(self, keys: Sequence[Key]) -> Batch:
        studies = [key.study for key in keys]
        targets = padded([self._images.ids[study] for study in studies])
        features = torch.from_numpy(self._features[studies])
        return Batch(features, targets, torch.tensor(studies, dtype=torch.long), ())


def dataset(
    model: R2Gen, studies: Sequence[Study], images: ReportDataset, config: Config
) -> FeatureDataset | None:
    """Returns the features of `studies`, computed if necessary; None if they do not fit into the cache.

    `images` shows the same studies uncropped.
    """
    if not config.image_cache_bytes:
        return None
    name = f"features-{_key(model.visual_extractor, studies, config)}"
    make = partial(_make, model=model, images=images, config=config)
    read = partial(FeatureDataset, images=images)
    needed = len(studies) * feature_bytes(config)
    return cache.opened(name, needed, config.image_cache_bytes, make, read)


def _key(extractor: VisualExtractor, studies: Sequence[Study], config: Config) -> str:
    digest = hashlib.blake2b(f"{FORMAT} {config.image_size} {config.views}".encode(), digest_size=16)
    for content in contents([path for study in studies for path in study.images]):
        digest.update(content.encode())
    for name, value in extractor.state_dict().items():
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


@torch.inference_mode()
def _make(place: Path, model: R2Gen, images: ReportDataset, config: Config) -> None:
    extractor, device = folded(model.visual_extractor), precision.device()
    shape = (len(images), config.views * (config.image_size // 32) ** 2, extractor.features)
    features = np.lib.format.open_memmap(place / _FEATURES, "w+", np.float16, shape)
    with (place / _FEATURES).open("rb+") as file:  # allocated now: a map beyond a full disk is a bus error
        os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    sampler = EvaluationSampler([0] * len(images), None, config.eval_batch_size)
    for batch in batches(loader(images, sampler, config, persistent=False)):
        if batch.faults:
            raise cache.NotKeptError(batch.faults[0])
        patches = together(extractor, normalise(batch.images.to(device)))
        features[batch.studies.numpy()] = halved(patches).cpu().numpy()
    features.flush()
    (place / _CHECKSUM).write_text(str(_checksum(place / _FEATURES)), encoding="ascii")


def _checksum(file: Path) -> int:
    checksum = 0
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            checksum = zlib.crc32(block, checksum)
    return checksum
