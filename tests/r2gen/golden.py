"""The recordings of the original R2Gen, and helpers for tests that use them."""

from pathlib import Path

import pytest

from benchmarks.check_parity import Recording
from r2gen.config import Config

GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden"
_SHARED = Path(__file__).parents[2].parent / "shared" / "golden"

RECORDING = Recording(GOLDEN)


def shared(name: str) -> Path:
    """Returns a recording that is not in this repository, as it has real reports; skips if it is missing."""
    path = _SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not on this machine")
    return path


def tiny(**settings: object) -> Config:
    """Returns the smallest model that has every part."""
    small = {"visual_extractor": "small", "d_model": 16, "d_ff": 16, "num_heads": 2, "rm_num_heads": 2}
    return Config.model_validate({"data": "none", "num_layers": 2, "image_size": 64, **small, **settings})
