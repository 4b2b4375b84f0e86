"""A command's config files, rewritten for every trial."""

import json
import subprocess

import pytest

from autotune.core.errors import InputError
from autotune.workloads.command import files
from autotune.workloads.command.files import FilledFile

SETTINGS = {"batch": 8, "optim": {"betas": [0.9, 0.95]}, "precision": "bf16", "compile": True}
DS = """{
  "train_micro_batch_size_per_gpu": 4,
  "optimizer": {"params": {"betas": [0.9, 0.999]}},
  "bf16": {"enabled": false}, "fp16": {"enabled": "auto"},
  "name": "run"
}
"""
SET = {
    "train_micro_batch_size_per_gpu": "{batch}",
    "optimizer.params.betas": "{optim.betas}",
    "bf16.enabled": {"precision": "bf16"},
    "fp16.enabled": {"precision": ["fp16", "half"]},
    "compile": "{compile}",
    "name": "{workdir}/{batch}",
    "zero_optimization.stage": 2,
}
VALUES = {"batch": 8, "optim.betas": [0.9, 0.95], "precision": "bf16", "compile": True, "workdir": "/w"}


def own(**changed):
    return FilledFile.model_validate({"base": "ds.json", "set": SET, **changed})


def test_the_values_have_the_types_of_the_settings(tmp_path):
    (tmp_path / "ds.json").write_text(DS)
    text = files.text_of("ds", own(), tmp_path, VALUES)
    assert json.loads(text) == {
        "train_micro_batch_size_per_gpu": 8,
        "optimizer": {"params": {"betas": [0.9, 0.95]}},
        "bf16": {"enabled": True},
        "fp16": {"enabled": False},
        "name": "/w/8",
        "compile": True,
        "zero_optimization": {"stage": 2},
    }
    assert text.startswith(
        '{\n  "train_micro_batch_size_per_gpu": 8,\n  "optimizer": {"params": {"betas": [0.9, 0.95]'
    )


def test_line_ends_stay_as_they_are(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"a: 1\r\nb: 2\r\n")
    files.write({"c": own(base="a.yaml", set={"b": 3})}, tmp_path, {}, tmp_path)
    assert (tmp_path / "c.yaml").read_bytes() == b"a: 1\r\nb: 3\r\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "ds.json: cannot be read: No such file or directory"),
        (b"\xff", "ds.json: must be UTF-8"),
        (b"{", "ds.json: not JSON: Expecting property name"),
        (
            b'{"wandb": {"api_key": "abc"}}',
            "ds.json: it is written for every trial: wandb.api_key: looks like a key",
        ),
        (b'{"bf16": true}', "ds.json: bf16.enabled: bf16 is True, and has no names below it"),
    ],
)
def test_an_invalid_base_is_a_one_line_error_before_anything_starts(command, tmp_path, content, said):
    if content is not None:
        (tmp_path / "ds.json").write_bytes(content)
    given = {"ds": {"base": "ds.json", "set": {"bf16.enabled": {"precision": "bf16"}}}}
    with pytest.raises(InputError, match=r"^workload\.files\.ds: ") as error:
        command("", "{ds}", files=given).check({"precision": "bf16"})
    assert said in str(error.value)


def test_a_command_reads_its_own_file_in_its_workdir(command, tmp_path, workdir):
    (tmp_path / "ds.json").write_text(DS)
    workload = command(
        "import json, sys; print('acc', json.load(open(sys.argv[1]))['train_micro_batch_size_per_gpu'])",
        "{ds}",
        files={"ds": {"base": "ds.json", "set": SET}},
        samples="(acc)",
    )
    for batch in (8, 16):
        with pytest.raises(Exception, match="acc"):  # the script makes no step
            list(workload.fit({**SETTINGS, "batch": batch}, workdir))
        assert json.loads((workdir / "ds.json").read_text())["train_micro_batch_size_per_gpu"] == batch
    assert json.loads((tmp_path / "ds.json").read_text()) == json.loads(DS)


def test_the_base_is_part_of_the_revision(command, tmp_path):
    (tmp_path / "ds.json").write_text(DS)
    given = {"ds": {"base": "ds.json", "set": SET}}
    before = [workload.revision() for workload in (command("", "{ds}", files=given), command(""))]
    (tmp_path / "ds.json").write_text(DS + " ")
    after = [workload.revision() for workload in (command("", "{ds}", files=given), command(""))]
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_what_is_exported_writes_the_files_and_runs(command, tmp_path, monkeypatch):
    (tmp_path / "ds.json").write_text(DS.rstrip())
    monkeypatch.chdir(tmp_path)
    workload = command(
        "import sys; print(open(sys.argv[1]).read())", "{ds}", files={"ds": {"base": "ds.json", "set": SET}}
    )
    (tmp_path / "best.sh").write_text(workload.own_file.text(SETTINGS))
    done = subprocess.run(["sh", "best.sh"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["name"] == f"{tmp_path}/trained/8"


SCRIPT = """\
import json, pathlib, sys
import sizes
batch = 4
if __name__ == "__main__":
    here = pathlib.Path(__file__)
    print("acc", batch, sizes.WIDTH, here.parent.name)
    here.with_name("out.json").write_text(json.dumps(batch))
"""


@pytest.fixture
def scripted(command, tmp_path):
    """A command whose script has its settings as constants, and a module beside it."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "train.py").write_text(SCRIPT)
    (home / "sizes.py").write_text("WIDTH = 3")
    given = {"script": {"base": "train.py", "set": {"batch": "{batch}"}}}
    return command("", run="python {script}", files=given, samples="(acc)", directory=str(home))


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_script_with_other_constants_runs_where_it_is_and_its_directory_stays(
    scripted, tmp_path, workdir, monkeypatch, is_whole
):
    if is_whole:
        monkeypatch.setenv("AUTOTUNE_WHOLE", "1")
    with pytest.raises(Exception, match="acc 8 3 home"):  # the script makes no step
        list(scripted.fit({"batch": 8}, workdir))
    assert sorted(one.name for one in (tmp_path / "home").iterdir()) == ["sizes.py", "train.py"]
    assert (tmp_path / "home" / "train.py").read_text() == SCRIPT


def test_an_exported_script_lies_beside_the_original(scripted, tmp_path):
    text = scripted.own_file.text({"batch": 8})
    assert "mkdir" not in text
    (tmp_path / "best.sh").write_text(text)
    done = subprocess.run(["sh", tmp_path / "best.sh"], capture_output=True, text=True, check=True)
    assert done.stdout == "acc 8 3 home\n"
    assert (tmp_path / "home" / "train.tuned.py").read_text() == SCRIPT.replace("batch = 4", "batch = 8")


@pytest.mark.parametrize("base", ["../train.py", "/train.py"])
def test_a_script_elsewhere_is_refused(base):
    assert list(own(base=base, set={}).mistakes()) == [
        "base: a Python file must be in the directory in which the command runs"
    ]


def test_a_copy_is_never_written_behind_a_link(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("batch = 4")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "link").symlink_to(tmp_path / "src")
    with pytest.raises(InputError, match="its directory is a link"):
        files.write({"s": own(base="link/train.py", set={"batch": 8})}, tmp_path / "home", {}, tmp_path)
    assert [one.name for one in (tmp_path / "src").iterdir()] == ["train.py"]
