"""The searcher and the callback in real searches of `tune.Tuner`, with a memory limit unknown to them."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution as Choice
from optuna.distributions import FloatDistribution, IntDistribution
from ray import tune
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from autotune.ray.parameters import Parameters
from autotune.ray.search import MEMORY, MemoryAwareSearch
from tests.autotune.trackers.wandb_files import read_run

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
ROOT = Path(__file__).parents[3]

# In a process of its own: a second Ray in one may crash, and other tests change Ray in theirs.
SEARCHES = """
import json, sys, tempfile
import ray
from ray import tune
from ray.tune.search import ConcurrencyLimiter
from autotune.ray.search import MemoryAwareSearch
from autotune.ray.wandb import WandbCallback

SPACE = {"batch_size": tune.choice([8, 16, 32, 64, 128, 256]), "lr": tune.loguniform(1e-4, 1e-1)}

class OutOfMemoryError(RuntimeError):
    "Like PyTorch's."

def train(config):
    if config["batch_size"] > 40:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    tune.report({"speed": config["batch_size"]})

def never_fits(config):
    try:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    except OutOfMemoryError as error:
        raise ValueError("the training has failed") from error

def fit(name, trainable, search, trials, callbacks=(), **tuning):
    tuning = tune.TuneConfig(metric="speed", mode="max", search_alg=search, num_samples=trials, **tuning)
    running = tune.RunConfig(name=name, storage_path=sys.argv[1], callbacks=[*callbacks], verbose=0)
    tuner = tune.Tuner(trainable, param_space=SPACE, tune_config=tuning, run_config=running)
    return [[result.config["batch_size"], result.error is not None] for result in tuner.fit()]

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:  # short enough for the names of sockets
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=directory)
        points = [{"batch_size": 128, "lr": 1e-3}]
        first = MemoryAwareSearch(seed=0, points_to_evaluate=points)
        callback = WandbCallback(project="toy", dir=sys.argv[1])
        ended = {"border": fit("border", train, first, 6, [callback], max_concurrent_trials=1)}
        batched = ConcurrencyLimiter(MemoryAwareSearch(seed=0), max_concurrent=2, batch=True)
        short = lambda trial: trial.trial_id[-4:]
        ended["no room"] = fit("no_room", never_fits, batched, 50, trial_dirname_creator=short)
        ray.shutdown()
    print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The batch of each trial of real searches, whether it failed, and the directories of the searches."""
    place = tmp_path_factory.mktemp("searches")
    (place / "searches.py").write_text(SEARCHES)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    done = subprocess.run(
        [sys.executable, place / "searches.py", place],
        env=environment
        | {"HOME": str(place), "PYTHONPATH": str(ROOT), "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1]), place


@pytest.mark.long
def test_a_memory_limit_is_learnt_in_a_real_search_and_not_tried_again(real):
    trials = real[0]["border"]
    assert trials[0] == [128, True]  # the user's own point
    lost = [batch for batch, failed in trials[1:] if failed]
    assert lost in ([], [64])
    assert max(batch for batch, failed in trials if not failed) == 32


@pytest.mark.long
def test_a_real_search_ends_if_nothing_fits(real):
    """This holds for trials in batches too, and in directories without their ID."""
    assert real[0]["no room"] == [[8, True], [8, True]]


@pytest.mark.long
def test_a_search_is_restored_with_its_memory_limit(real):
    search = MemoryAwareSearch(seed=0)
    search.restore_from_dir(str(real[1] / "border"))
    assert max(search.suggest(f"again{n}")["batch_size"] for n in range(10)) <= 64


@pytest.mark.long
def test_failed_trials_are_marked_in_wandb_offline_without_a_key(real):
    runs = sorted(map(read_run, real[1].rglob("*.wandb")), key=lambda run: run.exit_code)
    assert len(runs) == 6
    failed = [run for run in runs if run.exit_code == 1]
    assert len(failed) == sum(lost for _, lost in real[0]["border"])
    assert {run.tags for run in failed} == {("failed", "oom")}
    assert failed[0].summary["failure"] == "oom"
    assert failed[0].summary["reason"].startswith("OutOfMemoryError: CUDA out of memory")
    assert {run.tags for run in runs if run.exit_code == 0} == {()}
    assert runs[0].summary["speed"] in {8, 16, 32}


@pytest.mark.long
def test_the_example_runs(tmp_path):
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / "ray_tune.py", "--trials", "3"],
            env={**os.environ, "HOME": str(tmp_path), "RAY_TMPDIR": directory, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 of 3 trials ran out of memory" in done.stdout


class Toy:
    """A training with its own names; `fits` says which batches and precisions fit."""

    def __init__(self, fits, **space):
        self._fits = fits
        self.SPACE = {"precision": ["32-true", "bf16-mixed"], "lr": (1e-5, 1e-1)} | space

    def evaluate(self, config, rng):
        batch = config["batch_size"]
        samples = batch * (1.0 if config["precision"] == "32-true" else 0.6)
        return (batch * rng.gauss(1, 0.02), rng.gauss(0.3, 0.01)) if self._fits(samples, config) else None


BATCHES = {"batch_size": [4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024]}
TOYS = {
    "batches": Toy(lambda samples, config: samples <= 70, **BATCHES),
    "lengths": Toy(
        lambda samples, config: samples * config["seq_len"] <= 9000, **BATCHES, seq_len=[128, 256, 512]
    ),
    "an unknown choice": Toy(
        lambda samples, config: samples * {"sgd": 1.0, "adam": 1.3}[config["optimizer"]] <= 90,
        **BATCHES,
        optimizer=["sgd", "adam"],
    ),
}


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import bench_ray

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield bench_ray
    for name in ("bench_ray", "bench_oom"):
        sys.modules.pop(name)


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize("toy", TOYS.values(), ids=TOYS)
def test_at_most_three_of_sixty_trials_run_out_of_memory(bench, toy, at_once):
    def lost(kind, seed):
        search = kind(metric=bench.METRICS, mode=["max", "max"], seed=seed)
        return bench.simulate(toy, search, 60, at_once, seed)[0]

    assert max(lost(MemoryAwareSearch, seed) for seed in range(2)) <= 3
    assert lost(OptunaSearch, 0) > 30


@pytest.fixture
def search(tmp_path):
    """A search that is driven as by Ray Tune; errors of trials are files in a directory."""
    made = MemoryAwareSearch(metric="speed", mode="max", seed=1)
    made.set_search_properties(
        "speed", "max", {"batch_size": tune.choice([8, 16, 32]), "x": tune.uniform(0, 1)}
    )
    made.save_to_dir(str(tmp_path))
    return made


def fail(search, trial_id, directory, text):
    place = directory / f"train_{trial_id}_x"
    place.mkdir()
    (place / "error.txt").write_text(f"Failure # 1 (occurred at now)\n{text}\n")
    search.on_trial_complete(trial_id, error=True)


@pytest.mark.parametrize(
    ("text", "is_evidence"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory.", True),
        ("RuntimeError: CUDA error: out of memory", True),
        ("MemoryError", True),
        ("MemoryError\n\nDuring handling of the above exception:\n\nKeyError: 'loss'", True),
        ("The actor died: the node was running low on memory.", True),
        ("ValueError: CUDA out of memory, they say", False),
        ("    if 'CUDA out of memory' in str(error):\nKeyError: 'loss'", False),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.", False),
        ("The actor died unexpectedly before finishing this task.", False),
    ],
)
def test_only_an_out_of_memory_is_evidence(search, tmp_path, text, is_evidence):
    assert search.suggest("a")["batch_size"] == 8
    fail(search, "a", tmp_path, text)
    assert (search.suggest("b") == Searcher.FINISHED) == is_evidence
    noted = [trial.user_attrs.get(MEMORY) for trial in search._ot_study.get_trials()]
    assert ("out of memory" in noted) == is_evidence


def test_a_failure_without_a_file_is_no_evidence(search, caplog):
    search.suggest("a")
    search.on_trial_complete("a", error=True)
    assert "no evidence of memory" in caplog.text
    assert search.suggest("b")["batch_size"] == 8


def test_without_parameters_that_move_memory_the_search_is_that_of_optuna(tmp_path):
    space = {"lr": tune.loguniform(1e-5, 1e-1), "dropout": tune.uniform(0, 0.5)}
    suggested = []
    for kind in (MemoryAwareSearch, OptunaSearch):
        one = kind(metric="speed", mode="max", seed=3)
        one.set_search_properties("speed", "max", space)
        suggested.append([one.suggest(f"{n}") for n in range(5)])
    assert suggested[0] == suggested[1]


def test_a_point_that_is_known_not_to_fit_is_not_run(tmp_path):
    points = [{"batch_size": 32}, {"batch_size": 64}, {"batch_size": 16}]
    search = MemoryAwareSearch(metric="speed", mode="max", points_to_evaluate=points)
    search.set_search_properties("speed", "max", {"batch_size": tune.choice([8, 16, 32, 64])})
    search.save_to_dir(str(tmp_path))
    assert search.suggest("a") == {"batch_size": 32}
    fail(search, "a", tmp_path, "torch.OutOfMemoryError: CUDA out of memory.")
    assert search.suggest("b") == {"batch_size": 16}


def define(trial):
    trial.suggest_categorical("batch_size", [8, 16, 32])
    if trial.suggest_categorical("precision", ["fp32", "bf16"]) == "bf16":
        trial.suggest_float("scale", 1, 2)


def test_a_define_by_run_space_is_searched(monkeypatch, tmp_path):
    search = MemoryAwareSearch(define, metric="speed", mode="max", seed=0)
    monkeypatch.setattr(search, "save", lambda path: None)  # modules of tests cannot be pickled
    search.save_to_dir(str(tmp_path))
    for number in range(8):
        config = search.suggest(f"t{number}")
        if config["batch_size"] > 16:
            fail(search, f"t{number}", tmp_path, "torch.OutOfMemoryError: CUDA out of memory.")
        else:
            search.on_trial_complete(f"t{number}", {"speed": config["batch_size"], "training_iteration": 1})
    noted = [trial.user_attrs[MEMORY] for trial in search._ot_study.get_trials()]
    assert noted.count("fitted") >= 6


def test_parameters_that_move_memory_must_be_in_the_space():
    search = MemoryAwareSearch(memory_parameters=["batch"])
    with pytest.raises(ValueError, match="memory_parameters: not in the search space: batch"):
        search.set_search_properties("speed", "max", {"batch_size": tune.choice([8, 16])})


SPACE = {
    "data/bs": IntDistribution(8, 100, step=4),
    "model/seq_len": Choice([128, 256]),
    "dtype": Choice(["float32", "bfloat16"]),
    "heads": IntDistribution(1, 8),
    "optimizer": Choice(["sgd", "adam"]),
    "lr": FloatDistribution(1e-5, 1e-1, log=True),
    "dropout": FloatDistribution(0, 0.5),
    "num_workers": Choice([0, 4]),
    "epochs": IntDistribution(1, 9),
    "grad_accum": Choice([1, 2]),
}


def test_parameters_that_move_memory_are_recognised_by_their_names():
    parameters = Parameters(SPACE)
    values = {
        "data/bs": 16,
        "model/seq_len": 128,
        "dtype": "bfloat16",
        "heads": 2,
        "optimizer": "sgd",
        "lr": 0.1,
    }
    assert parameters.config(values) == {
        "micro_batch_size": 16,
        "seq_len": 128,
        "precision": "bf16",
        "/heads": 2,
        "/optimizer": "sgd",
    }
    assert parameters.sizes(44) == [8, 16, 32, 44, 64]
    assert len(list(parameters.combinations())) == 4 * 2 * 2 * 4 * 2


def test_parameters_that_the_user_names_are_the_only_ones():
    parameters = Parameters(SPACE, ["epochs", "lr"])
    assert parameters.config({"epochs": 3, "lr": 0.1, "heads": 2}) == {"micro_batch_size": 3, "/lr": 0.1}
