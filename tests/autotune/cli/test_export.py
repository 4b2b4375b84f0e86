"""The winner of a kept session in each format."""

import json
import re
from pathlib import Path

import pytest

from autotune import __main__ as cli
from autotune.core.errors import InputError
from autotune.export import formats
from autotune.workloads import registry
from tests.faults.sessions import kept

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "export.md"


@pytest.fixture
def export(tmp_path, monkeypatch, capsys):
    """Exports a session of r2gen; returns the exit code and the output."""
    monkeypatch.chdir(tmp_path)
    kept("iu_xray", tmp_path / "s")

    def call(*arguments):
        code = cli.main(["export", "s", "--trial", "6", *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


def test_a_file_is_called_best_and_says_how_it_is_read(export):
    code, out, err = export("--format", "transformers")
    assert code == 0
    assert "Read with: HfArgumentParser(TrainingArguments).parse_json_file('best.json'" in out
    told = err.splitlines()
    assert told[0] == "not in best.json: channels_last: true"
    assert told[-1].endswith(" settings not searched, listed in best.json")
    values = json.loads(Path("best.json").read_text())
    assert values["per_device_train_batch_size"] == 8
    assert "channels_last: true" in values["_autotune"]["left out"]


def test_what_is_not_confirmed_is_exported_only_by_its_number(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    kept("iu_xray", tmp_path / "s")
    assert cli.main(["export", "s"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "autotune: no winner yet. Possibly 1.9x faster, not confirmed. "
        "To confirm it: python -m autotune resume s. To export it anyway, add --trial 6\n"
    )
    assert not Path("best.yaml").exists()


def test_the_workloads_own_format_is_the_default(export):
    _, out, _ = export()
    assert "Train with: python -m r2gen train --config best.yaml\n" in out
    own = Path("best.yaml").read_bytes()
    export("--format", "r2gen")
    assert Path("best.yaml").read_bytes() == own


def test_a_patched_file_is_a_copy_and_replaced_values_are_printed(export):
    text = "lr: 1.0e-3  # ours\nbatch_size: 4\nname: x\n"
    Path("own.yml").write_text(text)
    code, out, err = export("--patch", "own.yml")
    assert (code, out.startswith("best.yml: ")) == (0, True)
    assert "replaced: lr: 0.001 -> 0.002129\n" in err
    assert "not in best.yml: num_workers: 2: not found\n" in err
    assert Path("own.yml").read_text() == text
    best = Path("best.yml").read_text()
    assert best.endswith("lr: 0.002129  # ours\nbatch_size: 8\nname: x\n")
    assert "# trial: 6 of session iu_xray\n" in best


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--format", "shell"), "--format shell: r2gen.train:fit has no such format, but r2gen, "),
        (("--format", "lightening"), "no such format, got 'lightening', did you mean lightning?"),
        (("--format", "json", "--patch", "a.json"), "--format, --patch: at most one of them"),
        (("--patch", "none.yaml"), "--patch none.yaml: cannot be read: No such file"),
        (("--patch", "a.txt"), "a.txt: a file must be .json, .yaml, .yml"),
        (("--patch", "a.yaml"), "--patch a.yaml: has no place for any of: "),
        (("--trial", 99), "--trial 99: must be a completed trial"),
    ],
)
def test_what_cannot_be_written_is_one_line(export, arguments, said):
    for name in ("a.txt", "a.yaml"):
        Path(name).write_text("x: 1\n")
    code, out, err = export(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert not Path("best.yaml").exists()


COMMAND = {"kind": "command", "run": "python a.py", "quality": {"loss": "(.)"}}
WORKLOADS = {
    "r2gen": "r2gen",
    "function": "json:loads",
    "command": COMMAND,
    "lightning": {"kind": "lightning", "run": "python a.py"},
    "transformers": {"kind": "transformers", "run": "python a.py"},
}


def matrix():
    """The page's table of the formats that each workload has."""
    table = PAGE.read_text().partition("## Which workload")[2].partition('\n"With roles"')[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line
    ]
    head, _, *body = rows
    for first, *cells in body:
        for name in re.findall(r"`([a-z]\w+)`", first):
            yield from ((name, workload, cell) for workload, cell in zip(head[1:], cells, strict=True))


def test_the_page_says_which_workload_has_which_format():
    said = list(matrix())
    assert {name for name, _, _ in said} == set(formats.FORMATS)
    assert {workload for _, workload, _ in said} == set(WORKLOADS)
    for name, workload, cell in said:
        known = registry.named(WORKLOADS[workload])
        if cell == "no":
            with pytest.raises(InputError, match=f"--format {name}: "):
                formats.named(name, known)
        else:
            assert formats.named(name, known) is formats.FORMATS[name]
