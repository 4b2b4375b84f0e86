"""The walk for 8 GB: a search of its space, and the trainer's config that comes out of it."""

import os

import pytest

from r2gen import config as trainer
from r2gen import synthetic
from tests import forked
from tests.endings import ENDED
from tests.test_examples import EXAMPLES

pytestmark = pytest.mark.soak

PLACE = EXAMPLES / "r2gen_iu_xray"


def test_what_is_exported_keeps_the_published_batch_and_its_learning_rate(tmp_path):
    data = synthetic.make(tmp_path, {"train": 32, "val": 4, "test": 4}, seed=0, size=64)
    files = ("--space", PLACE / "space.yaml", "--baseline", PLACE / "baseline.yaml", "--data", data)
    shorter = ("--model", "small", "--trials", 2, "--samples", 192, "--repeats", 0, "--wandb", "off")
    done = forked.run(("search", *files, *shorter, "--session", "s"), tmp_path, os.environ)
    assert done.returncode in ENDED, done.stdout + done.stderr
    exported = forked.run(("export", "s", "--trial", "0", "-o", "best.yaml"), tmp_path, os.environ)
    assert exported.returncode == 0, exported.stderr + done.stdout
    found = trainer.load(tmp_path / "best.yaml")
    assert (found.effective_batch_size, found.learning_rate, found.epochs) == (16, 1e-4, 100)
