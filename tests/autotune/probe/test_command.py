"""Command lines of scripts that know nothing of the tuner are probed for real."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.core.errors import InputError
from autotune.probe import command, proposal
from autotune.probe.command import Choose, Wishes
from autotune.probe.proposal import ProbeResult
from autotune.probe.runs import Prober
from autotune.space import spaces
from tests.autotune.probe import scripts

Probe = Callable[..., ProbeResult]
pytestmark = pytest.mark.usefixtures("_without_compiler")


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    """Probes a script with further words on its command line."""

    def probe(script: str, *words: str, wishes: Wishes | None = None) -> ProbeResult:
        home, place = tmp_path / "home", tmp_path / "place"
        home.mkdir(exist_ok=True)
        place.mkdir()
        (home / "train.py").write_text(script)
        (home / "result.txt").write_text("mine")
        said: list[str] = []
        prober = Prober([sys.executable, "train.py", *words], home, place, said.append)
        found, _ = command.probe(prober, wishes or Wishes(), Choose(), cpus=2)
        return found

    return probe


def _knobs(found: ProbeResult) -> dict[str, str]:
    return {one.role: one.option.name for one in found.knobs}


def test_options_count_if_their_effect_is_seen(probe: Probe, tmp_path: Path) -> None:
    found = probe(scripts.ARGPARSE, "--lr", "0.02")
    assert _knobs(found) == {
        "micro_batch_size": "batch_size",
        "learning_rate": "lr",
        "num_workers": "num_workers",
        "seed": "seed",
    }
    assert found.length is not None
    assert (found.length[0], [one.name for one in found.length[1]]) == ("epochs", ["epochs"])
    assert (found.score.name, found.minimize, found.samples_per_epoch) == ("val_loss", True, 64)
    assert (tmp_path / "home" / "result.txt").read_text() == "mine", (
        "what the script writes stays in the view"
    )
    assert sorted(one.name for one in (tmp_path / "home").iterdir()) == ["result.txt", "train.py"]
    space = spaces.parse(proposal.text(found, []), "found")
    assert space.baseline["learning_rate"] == 0.02
    run = proposal.space(found)["workload"]["run"]
    assert run.endswith(
        "--lr {lr} --batch-size {batch_size} --num-workers {num_workers} --seed {seed} --epochs {epochs}"
    )


@pytest.mark.long
def test_names_of_the_script_are_options_if_the_line_sets_one_of_them(probe: Probe) -> None:
    found = probe(scripts.GLOBALS, "--batch_size=8", wishes=Wishes(score="val_loss"))
    assert _knobs(found) == {
        "micro_batch_size": "batch_size",
        "accumulation_steps": "accumulation_steps",
        "learning_rate": "learning_rate",
    }
    assert found.length is not None
    assert found.length[1][0].name == "max_iters"
    workload = proposal.space(found)["workload"]
    assert workload["seed"] == "hook"
    assert "--batch_size={batch_size} " in workload["run"]


def test_without_options_the_hook_sets_what_the_script_makes(probe: Probe) -> None:
    found = probe(scripts.CONSTANTS)
    assert found.kind == "torch"
    assert _knobs(found) == {
        "micro_batch_size": "loader.batch_size",
        "num_workers": "loader.num_workers",
        "learning_rate": "optimizer.lr",
    }
    assert (found.score.name, found.minimize, found.length) == ("eval_accuracy", False, None)
    space = spaces.parse(proposal.text(found, []), "found")
    assert space.baseline["micro_batch_size"] == 4


@pytest.mark.long
def test_values_in_a_file_on_the_line_are_settings(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(scripts.CONFIG)
    found = probe(scripts.CONFIGURED, "--config", "config.yaml")
    assert _knobs(found) == {
        "micro_batch_size": "loader.batch_size",
        "learning_rate": "optim.lr",
        "num_workers": "loader.num_workers",
    }
    assert (tmp_path / "home" / "config.yaml").read_text() == scripts.CONFIG
    workload = proposal.space(found)["workload"]
    assert workload["run"].endswith("--config {config_file}")
    assert workload["files"]["config_file"]["set"]["optim.lr"] == "{optim.lr}"
    assert found.length is not None
    assert found.length[1][0].name == "epochs"
    spaces.parse(proposal.text(found, []), "found")


@pytest.mark.long
def test_constants_of_a_script_without_options_are_settings(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "sizes.py").write_text("WIDTH = 4")
    (tmp_path / "home" / "weight.txt").write_text("1.0")
    found = probe(scripts.AT_THE_TOP)
    assert _knobs(found) == {"micro_batch_size": "batch_size", "learning_rate": "learning_rate"}
    assert found.length is not None
    assert (found.length[0], found.length[1][0].name) == ("steps", "max_iters")
    assert found.every is not None
    assert (tmp_path / "home" / "train.py").read_text() == scripts.AT_THE_TOP
    workload = proposal.space(found)["workload"]
    assert workload["run"].endswith(" {config_file}")
    assert (workload["files"]["config_file"]["base"], found.score.name) == ("train.py", "val_loss")
    spaces.parse(proposal.text(found, []), "found")


def test_a_script_behind_a_link_is_not_changed(tmp_path: Path) -> None:
    """A view has links to the directories beside the script's, and to environments."""
    for name in ("run/env", "src", "run/own"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "train.py").write_text("lr = 1")
    (tmp_path / "run" / "link").symlink_to(tmp_path / "src")
    (tmp_path / "place").mkdir()
    for file, count in (
        ("../src/train.py", 0),
        ("env/train.py", 0),
        ("link/train.py", 0),
        ("own/train.py", 1),
    ):
        prober = Prober([sys.executable, file], tmp_path / "run", tmp_path / "place", print)
        assert len(prober._of_files(".py")) == count, file


def test_the_constants_of_a_script_with_a_key_stay(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"lr = 1\nlogin(key='{'0a' * 20}')")
    (tmp_path / "place").mkdir()
    said: list[str] = []
    prober = Prober([sys.executable, "train.py"], tmp_path, tmp_path / "place", said.append)
    assert [prober._of_files(".py") for _ in range(2)] == [[], []]
    assert len(said) == 1, "said once"
    assert "the values in train.py stay: " in said[0]


@pytest.mark.long
def test_an_update_by_hand_shows_its_rate_in_later_losses(probe: Probe) -> None:
    found = probe(scripts.BY_HAND)
    assert _knobs(found) == {"micro_batch_size": "batch_size", "learning_rate": "lr"}
    assert found.score.name == "val_loss", "the perplexity says the same"


@pytest.mark.long
def test_a_rate_that_shows_only_after_a_warm_up_has_one_result(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(scripts.WARM_UP)
    (tmp_path / "place").mkdir()
    prober = Prober([sys.executable, "train.py"], tmp_path, tmp_path / "place", lambda _: None)
    _, lines = command.probe(prober, Wishes(), Choose(), cpus=2)
    assert [line for line in lines if line.startswith("lr ")] == ["lr 0.01 -> 0.02: has an effect"]


@pytest.mark.long
def test_several_scores_without_a_terminal_are_an_error(probe: Probe) -> None:
    with pytest.raises(InputError, match=r"--score NAME: which of these counts\? val_.*; val_"):
        probe(scripts.GLOBALS, "--batch_size=8")


@pytest.mark.long
@pytest.mark.parametrize("wished", ["", "test_loss"])
def test_a_first_evaluation_that_comes_late_is_waited_for(probe: Probe, wished: str) -> None:
    found = probe(scripts.LATE, wishes=Wishes(score=wished))
    assert (found.score.name, found.minimize) == ("test_loss", True)


@pytest.mark.long
def test_only_what_is_asked_for_is_tried(probe: Probe) -> None:
    found = probe(scripts.ARGPARSE, wishes=Wishes(roles=command.roles("workers")))
    assert set(_knobs(found)) == {"num_workers", "seed"}
    assert found.length is None


@pytest.mark.parametrize("words", ["no-such-program", "./train.py", "0/", "./", "SEED=1"])
def test_a_command_line_without_a_program_is_a_one_line_error(tmp_path: Path, words: str) -> None:
    (tmp_path / "train.py").write_text("not executable")
    with pytest.raises(InputError, match=r"must begin with a program, got '.*': not found, or not exec"):
        Prober([words], tmp_path, tmp_path, lambda _: None)


@pytest.mark.long
def test_the_progress_of_a_silent_training_is_shown(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\ntime.sleep(7)")
    said: list[str] = []
    prober = Prober([sys.executable, "train.py"], tmp_path, tmp_path, said.append)
    prober.run(prober.line, lambda _: False, 60.0)
    assert any(line.startswith("  0 steps after ") for line in said)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (scripts.FIXED, "there is nothing to tune"),
        ("raise SystemExit(3)", "exit code 3 before its first step"),
        ("print('no torch here')", "no training step was seen"),
    ],
)
def test_a_command_that_does_not_train_is_a_one_line_error(probe: Probe, script: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        probe(script)


def test_unknown_groups_are_refused() -> None:
    with pytest.raises(InputError, match=r"--only: one or more of batch, lr, .*, got speed"):
        command.roles("lr,speed")


@pytest.mark.long
def test_what_is_named_like_steps_may_count_epochs(probe: Probe) -> None:
    found = probe(scripts.ARGPARSE.replace("epochs", "niter"))
    assert found.length is not None
    assert (found.length[0], found.length[1][0].name) == ("epochs", "niter")


@pytest.mark.long
@pytest.mark.parametrize("epochs", [2, 8], ids=["it ended while watched", "it did not"])
@pytest.mark.parametrize("name", ["epochs", "niter"])
def test_a_length_without_effect_stays(probe: Probe, epochs: int, name: str) -> None:
    if (epochs, name) == (8, "epochs"):
        pytest.skip("believed by its name")
    found = probe(scripts.ARGPARSE.replace("range(args.epochs)", f"range({epochs})").replace("epochs", name))
    assert found.length is None


@pytest.mark.long
def test_an_option_that_is_only_named_like_a_length_does_not_hide_the_length(probe: Probe) -> None:
    other = 'parser.add_argument("--iters", type=int, default=100)\nargs = parser.parse_args()'
    found = probe(scripts.ARGPARSE.replace("args = parser.parse_args()", other))
    assert found.length is not None
    assert (found.length[0], found.length[1][0].name) == ("epochs", "epochs")


@pytest.mark.long
def test_a_long_start_is_waited_for_and_a_setting_that_ends_the_script_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("_WATCHED_S", "_TRIED_S"):
        monkeypatch.setattr(command, limit, 2.0)
    refuses = "assert args.num_workers < 1\nimport time; time.sleep(3)\nimport torch"
    (tmp_path / "train.py").write_text(scripts.ARGPARSE.replace("import torch", refuses, 1))
    prober = Prober([sys.executable, "train.py"], tmp_path, tmp_path, lambda _: None)
    _, lines = command.probe(prober, Wishes(roles=command.roles("workers,lr")), Choose(), cpus=2)
    assert "lr 0.01 -> 0.02: has an effect" in lines
    assert "num_workers 0 -> 1: ended with exit code 1 before its first step, so it stays" in lines


@pytest.mark.long
@pytest.mark.parametrize(("persistent", "fewest"), [("False", 0), ("True", 1)])
def test_no_workers_are_offered_unless_the_loader_refuses_that(
    probe: Probe, persistent: str, fewest: int
) -> None:
    workers = "num_workers=args.num_workers"
    script = scripts.ARGPARSE.replace(workers, f"{workers}, persistent_workers={persistent}")
    wishes = Wishes(roles=command.roles("workers"))
    found = probe(script, "--num-workers", "2", "--epochs", "20", wishes=wishes)
    assert min(proposal.space(found)["knobs"]["num_workers"]["choice"]) == fewest


_AS_WORDS = "train.lr={train.lr} train.batch_size={train.batch_size} train.epochs={train.epochs}"
_AS_FLAGS = "--shuffle --lr={lr} --epochs {epochs} --batch_size {batch_size}"


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "words", "prefix", "ending"),
    [
        (scripts.OMEGACONF, "train.lr=0.02", "train.", _AS_WORDS),
        (scripts.HYDRA, "train.lr=0.02", "train.", _AS_WORDS),
        (scripts.FIRE, "--shuffle --lr=0.02 --epochs 400", "", _AS_FLAGS),
    ],
    ids=["omegaconf", "hydra", "fire"],
)
def test_a_configuration_and_the_parameters_of_a_function_are_options(
    probe: Probe, script: str, words: str, prefix: str, ending: str
) -> None:
    found = probe(script, *words.split())
    assert _knobs(found) == {
        "micro_batch_size": f"{prefix}batch_size",
        "learning_rate": f"{prefix}lr",
        "num_workers": "loader.num_workers",
    }
    assert proposal.space(found)["workload"]["run"].endswith(ending)
