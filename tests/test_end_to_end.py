"""The main job with the real trainer: search under a memory limit, export, train without the tuner."""

import json
import os
from pathlib import Path

import pytest
import yaml

from autotune.compare import results
from autotune.core.trial import Status
from autotune.storage import study_file
from autotune.storage.store import StoredSession
from r2gen import config as trainer
from r2gen import synthetic
from r2gen.compared import entries
from tests import forked
from tests.endings import ENDED

pytestmark = pytest.mark.timeout(900)

SPACE = """
workload: r2gen
baseline:
  {visual_extractor: small, image_size: 64, d_model: 32, d_ff: 32, num_layers: 1, num_heads: 2,
   rm_num_heads: 2, micro_batch_size: 4, accumulation_steps: 1, num_workers: 0, learning_rate: 1e-3,
   max_seq_length: 30, beam_size: 1, eval_studies: 4, epochs: 50}
knobs:
  micro_batch_size: {choice: [4, 256]}
  d_ff: {choice: [32, 8000000]}
  precision: {choice: [fp32, tf32, fp16, fp8]}
  learning_rate: {scale: sqrt}
limits: {effective_batch_size: [4, 256]}
budget: {trials: 4, samples_per_trial: 64, repeats: 0}
objective: {keep: 0.01, select: same-quality}
"""

# Stands for an environment in which these were never installed.
BLOCKER = """
import runpy, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"ray", "optuna", "wandb", "autotune"}:
            raise ImportError(f"{name} is not installed here")
sys.meta_path.insert(0, Blocker())
runpy.run_module("r2gen", run_name="__main__", alter_sys=True)
"""

WITHOUT_JAVA = os.devnull  # METEOR's start would take as long as all the rest


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A directory with a finished search, and what it said."""
    root = tmp_path_factory.mktemp("search")
    data = synthetic.make(root / "data", {"train": 256, "val": 4, "test": 4}, seed=0, size=64)
    (root / "space.yaml").write_text(SPACE)
    search = ("search", "--space", "space.yaml", "--data", data, "--session", "s")
    done = autotune(root, *search, "--memory-limit", "400MiB")
    assert done.returncode in ENDED, done.stdout + done.stderr
    return root, done.stdout


def autotune(root, *arguments, **environment):
    own = {"WANDB_MODE": "offline", "PYTHONPATH": str(forked.WITHOUT_COMPILER)}
    return forked.run(arguments, root, {**os.environ, **own, **environment}, timeout=300)


def test_trials_that_do_not_fit_are_failures_and_the_search_goes_on(searched):
    root, said = searched
    trials = study_file.load_study(root / "s" / "study.db").trials
    assert len(trials) == 4
    big = [t for t in trials if t.config["d_ff"] > 32 or t.config["micro_batch_size"] == 256]
    assert big
    assert all(t.out_of_memory for t in big), [t.outcome for t in big]
    assert len({(t.config["d_ff"], t.config["precision"]) for t in big}) == len(big), "paid twice"
    assert "failed (oom)" in said
    assert trials[0].completed


def test_a_completed_trial_has_every_figure(searched):
    root, _ = searched
    baseline = study_file.load_study(root / "s" / "study.db").trials[0].measurement
    assert baseline.throughput.samples_per_s > 0
    assert baseline.quality_samples >= 64
    assert {"bleu_1", "bleu_4", "rouge_l", "cider", "full_bleu_4"} <= set(baseline.scores)
    assert sum(baseline.step_shares.values()) == pytest.approx(1)
    assert 0 < baseline.peak_memory_bytes < baseline.memory_limit_bytes == 400 * 2**20
    assert baseline.telemetry["host_rss_bytes"] > 0
    assert baseline.telemetry["others_cpu_percent"] >= 0, (
        "below Ray, too, it is known where the search begins"
    )


def test_a_search_leaves_a_report_of_a_search_that_has_ended(searched):
    root, said = searched
    assert "Report: s/report.html\n" in said
    left = (root / "s" / "report.html").read_text()
    done = autotune(root, "report", "s", "-o", "-")
    assert (done.stdout, done.stderr) == (left, ""), "a session that nobody has in use reads the same"
    found = json.loads(autotune(root, "report", "s", "--format", "json", "-o", "-").stdout)
    assert found["state"] == "ended"
    assert found["answer"]["full_training_samples"] == 50 * 256
    assert sum(row["failure"] == "oom" for row in found["trials"]) >= 1


def test_the_export_is_the_trials_own_configuration(searched):
    root, _ = searched
    assert autotune(root, "export", "s", "-o", "best.yaml").returncode == 0
    text = (root / "best.yaml").read_text()
    for fact in ("# trial: ", "# measured: ", "# hardware: ", "# versions: ", "# seed: "):
        assert fact in text
    exported = trainer.load(root / "best.yaml")
    number = int(text.partition("# trial: ")[2].split()[0])
    trial = study_file.load_study(root / "s" / "study.db").trials[number]
    space = yaml.safe_load((root / "s" / "space.yaml").read_text())
    assert exported == trainer.parse({**space["baseline"], **trial.config})


@pytest.mark.long
def test_the_plain_trainer_needs_no_tuner(searched):
    root, _ = searched
    autotune(root, "export", "s", "-o", "best.yaml")
    train = ("train", "--config", "best.yaml", "--workdir", "trained", "--set", "epochs=1")
    without = {**os.environ, "PATH": WITHOUT_JAVA}
    done = forked.run(train, root, without, script=BLOCKER, warm="trainer")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (root / "trained" / "best.pt").exists() or (root / "trained" / "last.pt").exists()


@pytest.mark.slow
def test_precisions_are_compared_by_the_reports_that_their_models_write(searched):
    root, _ = searched
    done = autotune(root, "compare", "s", "--precisions", "bf16", PATH=WITHOUT_JAVA)
    assert done.returncode == 0, done.stdout + done.stderr
    studies = json.loads(next((root / "data").glob("*/annotation.json")).read_text())["test"]
    session = StoredSession(root / "s")
    found = results.first_models(results.runs(session.comparison.root))
    assert list(found) == ["baseline", "bf16"]
    for label, model in found.items():
        place = session.model_dir(label)
        assert model.outcome.status is Status.COMPLETED, model.outcome
        assert model.training.quality_samples >= model.samples == 64
        assert {"bleu_1", "bleu_4", "rouge_l", "cider", "full_bleu_4"} <= set(model.scores)
        assert model.reports_per_s > 0
        assert model.peak_memory_bytes > 0
        written = list(entries.read(place.reports_file))
        assert [w.id for w in written] == [study["id"] for study in studies]
        assert all(Path(image).is_file() for w in written for image in w.images)
        assert all(set(w.scores) == {"bleu_1", "bleu_4", "rouge_l"} for w in written)
        assert not place.work.exists()
        assert len(model.items["bleu_4"]) == len(studies)
        assert (model.steps.bad, model.steps.overflows) == (0, 0)
        assert model.steps.final_loss > 0
    assert done.stdout.splitlines()[-2].startswith("Not decided")


def test_every_trial_has_a_run_in_wandb_and_the_study_opens_in_the_dashboards_reader(searched):
    root, _ = searched
    assert len(list(Path(root, "s", "wandb").glob("offline-run-*/*.wandb"))) == 5, "and the session's own"
