"""The trainer as a script that knows nothing of the tuner, beside the same one as a generator."""

from pathlib import Path

import pytest
import yaml

from autotune.core.measurement import Metric
from autotune.core.trial import Status
from autotune.storage.layout import TrialDir
from autotune.storage.records import read_records
from autotune.trials.attempt import Attempt
from autotune.trials.order import Ends, Order
from r2gen import config as trainer
from r2gen import synthetic
from tests import tiny_r2gen

from .conftest import finish

STUDIES = {"train": 10, "val": 4, "test": 3}
TINY = {
    **tiny_r2gen.MODEL,
    "micro_batch_size": 2,
    "accumulation_steps": 2,
    "learning_rate": 1e-3,
    "epochs": 4,
    "num_workers": 0,
    "beam_size": 1,
    "meteor": False,
    "eval_every_samples": 10,
    "seed": 3,
}
SET = ("micro_batch_size", "accumulation_steps", "learning_rate", "seed")


def as_command(config: Path) -> dict[str, object]:
    settings = " ".join(f"--set {name}={{{name}}}" for name in SET)
    return {
        "kind": "command",
        "run": f"python -m r2gen train --config {config} --workdir {{workdir}} {settings}",
        "directory": str(Path(__file__).parents[2]),
        "quality": {name: rf"[:,] {name} ([0-9.]+)" for name in ("bleu_1", "bleu_4")},
    }


@pytest.mark.long
def test_as_a_command_r2gen_takes_the_same_steps_to_the_same_quality(server, tmp_path):
    data = synthetic.make(tmp_path / "data", STUDIES, seed=0, size=80)
    settings = trainer.parse({**TINY, "data": str(data)}).model_dump(mode="json")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    forms = {"generator": ("r2gen", settings), "command": (as_command(tmp_path / "config.yaml"), TINY)}
    seen = {}
    for form, (workload, given) in forms.items():
        place = tmp_path / form
        order = Order(0, workload, given, str(place), Metric("bleu_1"), Ends(20), keep_work=True)
        report = finish(Attempt(order, server))
        assert report.outcome.status is Status.COMPLETED, report.outcome.reason
        records = [r for r in read_records(TrialDir(place)) if "samples" in r]
        steps = [r["samples"] for r in records if "bleu_1" not in r]
        scores = [
            (r["samples"], round(r["bleu_1"], 4), round(r["bleu_4"], 4)) for r in records if "bleu_1" in r
        ]
        assert report.measurement.throughput.samples_per_s > 0
        seen[form] = steps[:6], scores[:2]
    assert seen["command"] == seen["generator"]
    assert seen["command"][0] == [4, 8, 10, 14, 18, 20]
