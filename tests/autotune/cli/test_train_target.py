"""Targets of `autotune train` besides sessions: spaces, a trainer's own config, an error for all else."""

import json

import pytest
import yaml

from autotune.__main__ import main
from autotune.cli.train import space_of
from autotune.core.errors import InputError
from autotune.storage.layout import TrainingDir
from autotune.storage.store import short_list
from autotune.workloads import registry
from r2gen import checkpoint, synthetic
from tests import tiny_r2gen

SMALL = {
    **tiny_r2gen.MODEL,
    "beam_size": 1,
    "micro_batch_size": 4,
    "accumulation_steps": 2,
    "learning_rate": 3e-4,
    "epochs": 1,
    "num_workers": 0,
    "meteor": False,
    "halve_on_oom": False,
    "seed": 7,
}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def config(directory, **changes):
    """What `export` writes for r2gen."""
    data = synthetic.make(directory, {"train": 8, "val": 4, "test": 3}, 0, 80)
    file = directory / "best.yaml"
    settings = {**SMALL, "data": str(data), **changes}
    file.write_text("# where it comes from\n" + registry.load("r2gen").own_file.text(settings))
    return file


@pytest.mark.slow
def test_a_config_of_r2gen_is_trained_with_exactly_its_settings(tmp_path):
    file = config(tmp_path)
    assert main(["train", str(file), "--workdir", "t", "--wandb", "off"]) == 0
    place, said = TrainingDir(tmp_path / "t"), yaml.safe_load(file.read_text())
    planned = json.loads(place.plan_file.read_text())
    assert (planned["workload"], planned["config"], planned["samples"]) == ("r2gen", {}, 8)
    assert planned["settings"] == said
    assert checkpoint.load(place.work / "last.pt")["config"] == said


def test_options_replace_values_of_a_config(tmp_path):
    file = config(tmp_path)
    other = synthetic.make(tmp_path / "other", {"train": 5, "val": 2, "test": 2}, 0, 80)
    space, _ = space_of(str(file), other)
    assert space.baseline == {**yaml.safe_load(file.read_text()), "data": str(other)}

    without = {name: value for name, value in space.baseline.items() if name != "data"}
    file.write_text(yaml.safe_dump(without))
    assert space_of(str(file), other)[0].baseline == space.baseline
    with pytest.raises(InputError, match="or a config of r2gen with its data"):
        space_of(str(file), None)


def test_a_config_whose_names_are_not_all_text_is_refused(tmp_path, capsys):
    file = config(tmp_path)
    file.write_text(file.read_text() + "0.5: 1\n")
    assert main(["train", str(file), "--workdir", "t"]) == 2
    assert "names must be text, got 0.5" in capsys.readouterr().err


def test_a_misspelt_setting_of_a_config_is_named(tmp_path, capsys):
    file = config(tmp_path)
    file.write_text(file.read_text().replace("epochs: 1\n", "epohcs: 1\n"))
    assert main(["train", str(file), "--workdir", "t"]) == 2
    assert "epohcs: no such setting, did you mean epochs?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\ndata: {b: 2}\n", "train x.yaml: must be a search space, which says its workload"),
        ("[1, 2]", "train x.yaml: must be a mapping, got list"),
        ("workload: r2gen", "search space x.yaml: baseline: required; knobs: required"),
        ("baseline: {}", "search space x.yaml: workload: required"),
        ("data: [", "train x.yaml: not YAML"),
        ("data: x\nwandb_api_key: secret", "train x.yaml: wandb_api_key: looks like a key"),
    ],
)
def test_another_file_is_refused_in_one_line(tmp_path, capsys, text, said):
    (tmp_path / "x.yaml").write_text(text)
    assert main(["train", "x.yaml"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["typo", "runs/typo", "empty", "x" * 300])
def test_a_missing_target_lists_the_search_spaces(tmp_path, capsys, name):
    (tmp_path / "empty").mkdir()
    assert main(["train", name]) == 2
    there = "search spaces: cpu, gpu, gpu-small, laptop-8gb, or a file"
    err = capsys.readouterr().err
    assert err == f"autotune: train {name}: no session, search space or config is there; {there}\n"
    assert {path.name for path in tmp_path.iterdir()} == {"empty"}


def test_only_some_of_many_sessions_are_listed():
    assert short_list("abcde") == "a, b, c, d, e"
    assert short_list("abcdefg") == "a, b, c, d, e and 2 more"


def test_a_trainings_directory_is_no_session(tmp_path, capsys):
    place = TrainingDir(tmp_path / "t")
    place.root.mkdir()
    place.plan_file.touch()
    place.events_file.touch()
    assert main(["train", "t"]) == 2
    said = "to continue it, give its session, search space or config with --workdir t --resume"
    assert f"autotune: train t: is a training; {said}\n" == capsys.readouterr().err
