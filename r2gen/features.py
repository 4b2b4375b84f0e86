"""What a frozen visual extractor makes of every image: computed once, kept, and read instead of images."""

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from r2gen import cache, precision
from r2gen.annotation import Study
from r2gen.config import Config
from r2gen.data import Batch, EvaluationSampler, Key, ReportDataset, loader, normalise, padded
from r2gen.images import contents
from r2gen.model import R2Gen, together
from r2gen.visual import VisualExtractor, folded

FORMAT = 1
_FEATURES, _BAD = "features.npy", "bad.json"
_LARGEST = float(np.finfo(np.float16).max)


class FeatureDataset(Dataset[Batch]):
    """A ReportDataset whose batches have features [B, views * patches, features] in place of images."""

    def __init__(self, place: Path, images: ReportDataset) -> None:
        self._features = np.load(place / _FEATURES, mmap_mode="r", allow_pickle=False)
        self._bad = frozenset(json.loads((place / _BAD).read_text(encoding="utf-8")))
        self._place, self._images = place, images

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process maps the same file, where workers are not forked."""
        return FeatureDataset, (self._place, self._images)

    def __len__(self) -> int:
        return len(self._images)

    def __getitems__(self, keys: Sequence[Key]) -> Batch:
        studies = [key.study for key in keys if key.study not in self._bad]
        faults = [
            f for key in keys if key.study in self._bad for f in self._images.__getitems__([key]).faults
        ]
        targets = padded([self._images.ids[study] for study in studies])
        features = torch.from_numpy(self._features[studies])
        return Batch(features, targets, torch.tensor(studies, dtype=torch.long), tuple(faults))


def dataset(
    model: R2Gen, studies: Sequence[Study], images: ReportDataset, config: Config
) -> FeatureDataset | None:
    """The features of `studies` by `model`'s extractor, computed if need be; None where they do not fit.

    `images` shows the same studies whole.
    """
    limit = config.image_cache_bytes
    name = f"features-{_key(model.visual_extractor, studies, config)}"
    make = partial(_make, model=model, images=images, config=config, limit_bytes=limit)
    place = cache.entry(name, limit, make) if limit else None
    return FeatureDataset(place, images) if place else None


def _key(extractor: VisualExtractor, studies: Sequence[Study], config: Config) -> str:
    digest = hashlib.blake2b(f"{FORMAT} {config.image_size} {config.views}".encode(), digest_size=16)
    for content in contents([path for study in studies for path in study.images]):
        digest.update(content.encode())
    for name, value in extractor.state_dict().items():
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


@torch.inference_mode()
def _make(place: Path, model: R2Gen, images: ReportDataset, config: Config, limit_bytes: int) -> None:
    extractor, device = folded(model.visual_extractor), precision.device()
    patches = config.views * (config.image_size // 32) ** 2
    shape = (len(images), patches, extractor.features)
    if (size := 2 * int(np.prod(shape))) > limit_bytes:
        raise cache.DoesNotFitError(f"the features of {len(images)} studies take {size / 2**30:.3g} GiB")
    features = np.lib.format.open_memmap(place / _FEATURES, "w+", np.float16, shape)
    bad = set(range(len(images)))
    sampler = EvaluationSampler([0] * len(images), None, config.eval_batch_size)
    for batch in loader(images, sampler, config, persistent=False):
        if len(batch.studies):
            found = together(extractor, normalise(batch.images.to(device)))
            features[batch.studies.numpy()] = _halved(found)
            bad -= set(batch.studies.tolist())
    features.flush()
    (place / _BAD).write_text(json.dumps(sorted(bad)), encoding="utf-8")


def _halved(features: Tensor) -> np.ndarray:
    half: np.ndarray = features.clamp(-_LARGEST, _LARGEST).half().cpu().numpy()
    return half
