"""Files run no code and reach nothing outside; output controls no terminal; keys do not leak."""

import ast
import itertools
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch
import yaml
from rich.console import Console

import autotune
import r2gen
from autotune import __main__ as cli
from autotune.core import secrecy
from autotune.core.errors import InputError, printable
from autotune.core.measurement import Measurement
from autotune.core.trial import Failure, Outcome, Status, Trial
from autotune.display import draw
from autotune.display.console import Events, Screen
from autotune.display.snapshot import Snapshot
from autotune.engines.engine_cluster import TOKEN
from autotune.export import formats, winner
from autotune.judging.decisions.history import History
from autotune.space import spaces
from autotune.storage.study_file import SearchPlan
from autotune.workloads.base import Workload
from r2gen import __main__ as trainer
from r2gen import synthetic
from tests import forked
from tests.endings import ENDED
from tests.forked import Forked

from .sessions import kept, trials_of

HERE = Path(__file__).parent
CODE = [file for package in (autotune, r2gen) for file in sorted(Path(package.__file__).parent.rglob("*.py"))]
UNSAFE_MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "joblib",
    "jsonpickle",
}
UNSAFE_CALLS = {
    *("eval", "exec", "compile", "__import__", "yaml.load", "yaml.load_all", "yaml.unsafe_load"),
    *(
        "yaml.full_load",
        "yaml.unsafe_load_all",
        "yaml.full_load_all",
        "os.system",
        "os.popen",
        "torch.jit.load",
    ),
}


def dotted(node):
    """Returns `a.b.c` for a name or an attribute, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def unsafe(tree):
    """Yields the imports and calls in a module that can run a file's content."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", None) or ""] + [alias.name for alias in node.names]
            yield from (n for n in names if n.partition(".")[0] in UNSAFE_MODULES)
        if not isinstance(node, ast.Call):
            continue
        name, given = dotted(node.func), {k.arg: k.value for k in node.keywords}
        if name in UNSAFE_CALLS or "shell" in given:
            yield name
        if name == "torch.load" and getattr(given.get("weights_only"), "value", None) is not True:
            yield "torch.load without weights_only=True"
        if getattr(given.get("allow_pickle"), "value", False):
            yield f"{name} with allow_pickle"


@pytest.mark.parametrize("file", CODE, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_no_code_can_run_a_files_content(file):
    assert list(unsafe(ast.parse(file.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "code",
    [
        *("import pickle", "from joblib import load", "yaml.load(text)", "eval(text)", "torch.load(file)"),
        *("torch.load(file, weights_only=False)", "np.load(file, allow_pickle=True)", "run(x, shell=True)"),
    ],
)
def test_the_check_detects_unsafe_code(code):
    assert list(unsafe(ast.parse(code)))


class Malicious:
    """Runs a command when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return synthetic.make(tmp_path_factory.mktemp("data"), {"train": 4, "val": 2, "test": 2}, seed=0, size=64)


SETTINGS = {
    "visual_extractor": "small",
    "image_size": 64,
    "d_model": 16,
    "d_ff": 16,
    "num_layers": 1,
    "num_heads": 2,
    "rm_num_heads": 2,
    "num_workers": 0,
    "epochs": 1,
    "meteor": False,
    "beam_size": 1,
}


@pytest.mark.parametrize("shape", ["alone", "among tensors", "in ours"])
@pytest.mark.parametrize("use", ["evaluate", "resume", "weights"])
def test_a_planted_checkpoint_is_refused_in_a_line_and_runs_nothing(tmp_path, data, capsys, shape, use):
    marker = tmp_path / "ran"
    planted = {
        "alone": Malicious(marker),
        "among tensors": {"state_dict": {"w": torch.ones(1), "x": Malicious(marker)}},
        "in ours": {"format": 1, "model": {}, "vocabulary": [], "config": Malicious(marker)},
    }[shape]
    config, work = tmp_path / "config.yaml", tmp_path / "work"
    work.mkdir()
    file = work / {"evaluate": "best.pt", "resume": "last.pt", "weights": "resnet.pt"}[use]
    torch.save(planted, file)
    weights = {"visual_weights": str(file)} if use == "weights" else {}
    config.write_text(yaml.safe_dump({"data": str(data), **SETTINGS, **weights}))
    arguments = ["train", "--config", config, "--workdir", work]
    if use == "evaluate":
        arguments = ["evaluate", "--checkpoint", file, "--data", data]
    assert trainer.main([str(a) for a in arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(file) in said
    assert "weights_only" not in said  # torch's advice on how to run it anyway
    assert not marker.exists()


def test_a_yaml_that_constructs_objects_is_refused(tmp_path, capsys):
    file = tmp_path / "space.yaml"
    file.write_text(f"workload: !!python/object/apply:os.system ['touch {tmp_path}/ran']")
    for arguments in (["search", "--space", file], ["search", "--baseline", file]):
        assert cli.main([str(a) for a in arguments]) == 2
        assert "not YAML" in capsys.readouterr().err
    assert trainer.main(["train", "--config", str(file)]) == 2
    assert not (tmp_path / "ran").exists()


PLANTED = (
    "typer",
    "yaml",
    "pydantic",
    "rich",
    "jinja2",
    "optuna",
    "torch",
    "r2gen",
    "json",
    "socket",
    "pathlib",
)


@pytest.fixture
def planted(tmp_path):
    """Creates a received session with modules that leave a mark if they are run."""
    place = kept("format-2", tmp_path / "s")
    for name in PLANTED:
        (place / f"{name}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\nraise SystemExit(3)"
        )
    return place


AS_MODULE, INSTALLED = ["-m", "autotune"], [Path(sys.executable).with_name("autotune")]


@pytest.mark.parametrize(
    ("program", "command"),
    [
        (AS_MODULE, ["status", "."]),
        (INSTALLED, ["status", "."]),
        pytest.param(AS_MODULE, ["doctor"], marks=pytest.mark.slow),
        pytest.param(INSTALLED, ["doctor"], marks=pytest.mark.slow),
        pytest.param(AS_MODULE, ["report", "."], marks=pytest.mark.long),
        pytest.param(INSTALLED, ["export", ".", "-o", "-"], marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_received_session_runs_none_of_its_code_in_its_own_directory(planted, program, command):
    done = subprocess.run(
        [sys.executable, *program, *command], cwd=planted, capture_output=True, text=True, check=False
    )
    assert not (planted.parent / "ran").exists(), (planted.parent / "ran").read_text()
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_the_trainer_runs_no_code_of_the_directory_that_it_is_called_in(planted):
    (planted / "r2gen.py").unlink()
    command = [sys.executable, "-m", "r2gen", "evaluate", "--checkpoint", "none.pt", "--data", "."]
    done = subprocess.run(command, cwd=planted, capture_output=True, text=True, check=False)
    assert not (planted.parent / "ran").exists(), (planted.parent / "ran").read_text()
    assert done.returncode == 2, done.stderr


OWN = """
import time
import beside
def fit(config, workdir):
    for n in range(1, 41):
        time.sleep(0.002)
        yield {"samples": n * config["micro_batch_size"], "train_loss": 1.0}
        if n % 10 == 0:
            yield {"samples": n * config["micro_batch_size"], "bleu_4": beside.SCORE}
"""


@pytest.mark.long
def test_a_workload_in_the_working_directory_is_found_with_what_it_imports(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "beside.py").write_text("SCORE = 0.2")
    (tmp_path / "space.yaml").write_text(SPACE.replace("json.tool:main", "own:fit"))
    search = ("search", "--wandb", "off", "--space", "space.yaml", "--session", "s")
    done = forked.run(
        *((*search, "--trials", 2, "--samples", 100), tmp_path, os.environ),
        script=f"import sys\ndel sys.path[0]  # as `python -m autotune` does\n{forked.COMMAND}",
    )
    assert done.returncode in ENDED, done.stderr
    assert trials_of(tmp_path / "s")
    assert all(trial.completed for trial in trials_of(tmp_path / "s"))


@pytest.fixture
def search(tmp_path, monkeypatch, capsys):
    """Runs a search that must be refused, in an empty directory; returns its line of output."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        own = [] if "--session" in arguments else ["--session", "s"]
        code = cli.main(["search", *map(str, arguments), *own])
        said = capsys.readouterr()
        assert (code, said.out, said.err.count("\n")) == (2, "", 1), said
        assert not Path("s").exists()
        return said.err

    return run


def test_a_workload_that_another_module_hides_is_refused(search, tmp_path):
    (tmp_path / "yaml.py").write_text("def fit(config, workdir): ...")
    (tmp_path / "hidden.yaml").write_text(SPACE.replace("json.tool:main", "yaml:fit"))
    assert "workload yaml:fit: there is another module yaml " in search("--space", "hidden.yaml")


def edit(root, change):
    file = root / "annotation.json"
    annotation = json.loads(file.read_text())
    change(annotation)
    file.write_text(json.dumps(annotation))


def link_out(root):
    picture = next((root / "images").glob("*/0.png"))
    outside = root.parent / "elsewhere.png"
    shutil.copy(picture, outside)
    picture.unlink()
    picture.symlink_to(outside)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (
            lambda r: edit(r, lambda a: a["train"][0].update(image_path=["../../etc/passwd"] * 2)),
            "../etc/passwd",
        ),
        (lambda r: edit(r, lambda a: a["train"][0].update(image_path=["/etc/passwd"] * 2)), "/etc/passwd"),
        (
            lambda r: edit(r, lambda a: a["train"][0].update(image_path=["x/../../annotation.json"] * 2)),
            "annot",
        ),
        (link_out, "0.png"),
    ],
    ids=["up", "absolute", "up from below", "link"],
)
def test_an_image_outside_the_image_directory_is_a_bad_sample(tmp_path, search, data, change, part):
    root = tmp_path / "data"
    shutil.copytree(data, root)
    change(root)
    said = search("--data", root)
    assert re.search(r"(train|val|test) study '\S+': image .* lies outside ", said), said
    assert part in said


def test_a_data_set_behind_links_is_an_ordinary_one(tmp_path, data):
    from r2gen.annotation import load_annotation
    from r2gen.config import parse

    disk, root = tmp_path / "disk", tmp_path / "data"
    shutil.copytree(data / "images", disk / "pictures")
    root.mkdir()
    shutil.copy(data / "annotation.json", root)
    (root / "images").symlink_to(disk / "pictures")
    (tmp_path / "link").symlink_to(root)
    annotation = load_annotation(parse({"data": tmp_path / "link", **SETTINGS}))
    assert annotation.skipped == 0
    assert all(image.is_file() for study in annotation.splits["train"] for image in study.images)


# Control sequences of a terminal, and markup of Rich.
HOSTILE = "a\x1b[2J\x1b]0;x\x07\rb\nc\u202ed\u2028e\x9bf [red]g[/] [/nothing] h\udcff"
SPACE = """
workload: json.tool:main
baseline: {micro_batch_size: 4, learning_rate: 1e-3}
knobs: {micro_batch_size: {choice: [4, 8]}}
"""


def is_harmless(text):
    return all(line.isprintable() for line in text.splitlines()) and "[red]g[/] [/nothing]" in text


def test_printable_removes_all_terminal_controls():
    assert printable(HOSTILE).isprintable()
    assert printable("Grüße, 数据 [red]") == "Grüße, 数据 [red]"


def test_tables_and_the_live_screen_show_hostile_text_literally(capsys):
    space = spaces.complete(spaces.parse(SPACE, "test"), "test")
    goal = space.objective.model_copy(update={"quality": HOSTILE})
    space = space.model_copy(update={"objective": goal})
    trial = Trial(
        number=0,
        config={"micro_batch_size": HOSTILE},
        outcome=Outcome(Status.FAILED, Failure.ERROR, HOSTILE),
        measurement=Measurement(),
    )
    begun = Snapshot(HOSTILE, HOSTILE, "running", space, SearchPlan(1, None), (), (), 0, None, None)
    console = Console(width=500)
    for screen in (Screen(console, begun), Events(console, begun)):
        screen.started(trial)
        console.print(draw.full_picture(screen.snapshot()))
        screen.ended(trial)
        screen.note(HOSTILE)
        screen.conclude([HOSTILE], {"why": HOSTILE})
        console.print(draw.full_picture(screen.snapshot()))
    said = capsys.readouterr().out
    assert is_harmless(said)


def test_hostile_arguments_and_errors_are_one_harmless_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in (["status", HOSTILE], ["search", "--data", HOSTILE], ["search", "--model", HOSTILE]):
        assert cli.main(arguments) == 2
        said = capsys.readouterr().err
        assert said.endswith("\n")
        assert is_harmless(said)
    assert trainer.main(["train", "--config", HOSTILE]) == 2
    assert is_harmless(capsys.readouterr().err)


def test_no_line_escapes_from_an_exports_comment():
    space = spaces.complete(spaces.parse(SPACE, "test"), "test")
    trial = Trial(0, space.baseline_config, Outcome(Status.COMPLETED))
    evil = "x\nmicro_batch_size: 999\r\x85y: 1\u2028z: 2"
    provenance = dict.fromkeys(("session", "hardware", "versions", "seed", "command"), evil)
    found = winner.from_trial(trial, History([trial], space), Workload("json.tool:main"), provenance)
    text = formats.FORMATS["yaml"].render(found).text
    assert yaml.safe_load(text) == space.baseline
    assert all(line.startswith("#") for line in text.splitlines() if "999" in line)


def made_up(kind):
    """Returns a made-up value in the form of a key."""
    return {
        "old": secrets.token_hex(20),
        "new": f"wandb_v1_{secrets.token_hex(30)}",
        "local": f"local-{secrets.token_hex(20)}",
        "word": secrets.token_hex(10),
    }[kind]


@pytest.mark.parametrize("place", ["baseline", "space", "knob", "list", "name"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("comment", "old"), ("comment", "new"), ("comment", "local"), ("wandb_api_key", "word")),
        *(("hf_token", "word"), ("db_password", "word"), ("aws_secret_access_key", "word")),
    ],
)
def test_a_key_in_a_file_is_refused_and_not_echoed(search, place, name, kind):
    key = made_up(kind)
    if place == "name":
        name, key = (key, 1) if kind in {"old", "new", "local"} else (name, key)
    values = yaml.safe_load(SPACE)
    given = {name: key}
    if place == "space":
        values["baseline"] |= given
    elif place == "knob":
        values["knobs"][name] = {"choice": [key, "x"]}
    elif place in {"list", "name"}:
        values["surprise"] = [{"inner": given}]
    Path("space.yaml").write_text(yaml.safe_dump(values))
    Path("mine.yaml").write_text(yaml.safe_dump(given if place == "baseline" else {}))
    said = search("--space", "space.yaml", "--baseline", "mine.yaml")
    assert "looks like a key or a password" in said
    secret = name if place == "name" and key == 1 else key
    assert secret not in said


@pytest.mark.parametrize("place", ["run", "words", "flags", "setup", "resume", "environment", "baseline"])
@pytest.mark.parametrize(
    "argument",
    [
        *(
            "--hf_token=KEY",
            "--hf-token KEY",
            "--password KEY",
            "--api-key KEY",
            "-api_key 'KEY'",
            "--dbPass KEY",
        ),
        *("db.password=KEY", "+openai_key=KEY", "--header 'Authorization: Bearer KEY'", "--data x/KEY.csv"),
        *("--override hub_token=KEY", "-m hub_token=KEY lr=1", "-e HF_TOKEN=KEY image", "--pwd KEY"),
        *(
            "--export=ALL,HF_TOKEN=KEY",
            "--bot_token 110201543:KEY",
            "--account_key KEY/a==",
            "--url x?token=KEY",
        ),
        *("-H 'X-Api-Key: KEY'", "--header 'Authorization: KEY'", '--config \'{"api_key": "KEY", "lr": 1}\''),
        *("-c 'python train.py --hf_token KEY'", "--hf_token \\\n KEY", "--jwt KEY.KEY.KEY"),
    ],
)
def test_a_key_in_an_argument_is_refused_and_not_echoed(search, monkeypatch, place, argument):
    key = made_up("word")
    if "x/KEY" in argument:
        monkeypatch.setenv("PLANTED_PASS", key)
    words = argument.replace("KEY", key)
    values = yaml.safe_load(SPACE)
    values["workload"] = {
        "kind": "command",
        "run": "python train.py {learning_rate}",
        "quality": {"acc": "(.)"},
    }
    given = {
        "run": f"python train.py {words}",
        "words": ["python", "train.py", *shlex.split(words)],
        "flags": {"micro_batch_size": {4: words, 8: ""}},
        "environment": {"EXTRA_ARGS": words},
        "baseline": {"extra": words},
    }.get(place, words)
    if place == "baseline":
        values["baseline"] |= given
    else:
        values["workload"]["run" if place == "words" else place] = given
    Path("space.yaml").write_text(yaml.safe_dump(values))
    said = search("--space", "space.yaml")
    assert "PLANTED_PASS" in said or "looks like a key or a password" in said
    assert "environment variable" in said
    assert key not in said


@pytest.mark.parametrize(
    "option", ["--tag", "--data", "--session", "--warm-start", "--space", "--score", "--address"]
)
def test_the_value_of_a_secret_variable_in_an_option_is_refused(search, monkeypatch, option):
    key = made_up("word")
    monkeypatch.setenv("PLANTED_PASS", key)
    said = search(option, f"x-{key}")
    assert "PLANTED_PASS" in said
    assert key not in said


@pytest.mark.parametrize("command", ["check", "train"])
def test_a_data_sets_path_is_checked_by_every_command_that_takes_one(tmp_path, capsys, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    key = made_up("word")
    monkeypatch.setenv("PLANTED_PASS", key)
    assert cli.main([command, "cpu", "--data", f"/x/{key}"]) == 2
    said = capsys.readouterr().err
    assert "PLANTED_PASS" in said
    assert key not in said


def test_a_number_that_is_a_secret_variables_value_is_refused(search, monkeypatch):
    monkeypatch.setenv("PLANTED_PASS", "8675309123")
    Path("mine.yaml").write_text("port: 8675309123")
    said = search("--space", "cpu", "--baseline", "mine.yaml")
    assert "PLANTED_PASS" in said
    assert "8675309123" not in said


@pytest.mark.parametrize("command", ["init", "search", "check"])
@pytest.mark.parametrize("words", ["python train.py --hf_token=KEY", "HF_TOKEN=KEY python train.py"])
def test_a_key_in_a_command_line_is_refused_before_it_runs(tmp_path, capsys, monkeypatch, command, words):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("open('ran', 'w')")
    key = made_up("word")
    assert cli.main([command, "--", *words.replace("KEY", key).split()]) == 2
    out, err = capsys.readouterr()
    assert "looks like a key or a password" in err
    assert key not in out + err
    assert [file.name for file in tmp_path.iterdir()] == ["train.py"]


def test_a_key_on_an_invalid_yaml_line_is_not_echoed(tmp_path, capsys):
    key, file = made_up("old"), tmp_path / "space.yaml"
    file.write_text(f"wandb_api_key: [{key}")
    for run in (
        lambda: cli.main(["search", "--space", str(file)]),
        lambda: cli.main(["search", "--baseline", str(file)]),
        lambda: trainer.main(["train", "--config", str(file)]),
    ):
        assert run() == 2
        said = capsys.readouterr().err
        assert "in line 1" in said
        assert key not in said


@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 512, "tokenizer": "gpt2", "pad_token": "<pad>", "eos_token": "</s>", "token": "[CLS]"},
        {
            "data": "/cache/snapshots/" + "0a" * 20,
            "revision": "0a" * 6,
            "key": "value",
            "dropout_token": None,
        },
        {"keys": [1, 2, 3], "seed": 10**39, "monkey": True},
    ],
)
def test_ordinary_settings_are_not_taken_for_keys(settings):
    secrecy.refuse_secrets(settings, "test")


def test_nested_aliases_are_visited_once():
    bomb = "a: &a [x, x]\n" + "".join(
        f"{c}: &{c} [{', '.join([f'*{p}'] * 9)}]\n" for p, c in itertools.pairwise("abcdefghijk")
    )
    values = spaces.parse_mapping(bomb, "test")
    secrecy.refuse_secrets(values, "test")
    with pytest.raises(InputError, match="no such key"):
        spaces.from_values({**yaml.safe_load(SPACE), **values}, "test")
    begun = time.process_time()
    with pytest.raises(InputError, match="baseline"):
        spaces.from_values({**yaml.safe_load(SPACE), "baseline": {"a": values["k"]}}, "test")
    assert time.process_time() - begun < 5


LEAKY = """
workload: garbage_workload:fit
baseline: {kind: sane}
knobs: {kind: {choice: [sane, leaks]}}
objective: {quality: bleu_4, select: same-quality}
budget: {trials: 2, samples_per_trial: 400, repeats: 0}
"""


def sockets(pid):
    """Returns the addresses and ports on which a process and its descendants listen."""
    found = set()
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return found
    for process in family:
        try:
            found |= {c.laddr for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN}
        except psutil.Error:
            continue
    return found


def files_in(root):
    """Returns the files below `root`; `Path.rglob` raises if a directory disappears meanwhile."""
    found = (Path(place, name) for place, _, names in os.walk(root) for name in names)
    return [file for file in found if file.is_file()]


def keys_in(file, keys):
    """Returns the names of the keys in a file, with the file; none if it is gone."""
    try:
        content = file.read_bytes()
    except OSError:
        return []
    return [(name, file) for name, key in keys.items() if key.encode() in content]


def token_of(pid):
    """Returns the token in the environment of Ray's processes below `pid`, which they require of clients."""
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error, KeyError):
            if "gcs_server" in process.name():
                return {TOKEN: process.environ()[TOKEN]}
    return {}


def test_a_search_writes_no_key_and_listens_on_loopback_only(tmp_path, monkeypatch):
    (tmp_path / "space.yaml").write_text(LEAKY)
    password = secrets.token_hex(10)
    named = (
        "AWS_SECRET_ACCESS_KEY",
        "OPENAI_KEY",
        "DB_PASS",
        "MYSQL_PWD",
        "GPG_PASSPHRASE",
        "SSH_KEY",
        "GITHUB_PAT",
    )
    keys = {"WANDB_API_KEY": secrets.token_hex(20)} | {name: secrets.token_hex(15) for name in named}
    search = ("search", "--space", "space.yaml", "--session", "s", "--wandb", "offline")
    # A deeper path is too long for Ray's sockets: the search would choose another directory.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as ray:
        environment = {
            **os.environ,
            **keys,
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
            "DATABASE_URL": f"postgres://me:{password}@db.example/x",
            "TMPDIR": ray,
        }
        keys["DATABASE_URL"] = password
        (tmp_path / "output").touch()
        process = Forked(search, tmp_path, environment, output=tmp_path / "output")
        listening, seen, leaks = set(), set(), []
        try:
            while process.poll() is None:  # Ray's directory is removed with it
                listening |= sockets(process.pid)
                with suppress(psutil.Error):
                    keys |= token_of(process.pid)
                for file in files_in(ray):
                    seen.add(file.name)
                    leaks += keys_in(file, keys)
                time.sleep(0.5)
        finally:
            process.kill()
            process.wait()
    said = (tmp_path / "output").read_text()
    assert process.returncode == 1, said
    assert "RuntimeError: 401: ['(hidden)', '(hidden)'] are not valid" in said
    monkeypatch.syspath_prepend(HERE)
    assert cli.main(["export", str(tmp_path / "s"), "-o", str(tmp_path / "best.yaml")]) == 0

    assert len(keys.get(TOKEN, "")) == 64
    left = files_in(tmp_path)
    assert {"study.db", "session.json", "log", "best.yaml", "output"} <= {file.name for file in left}
    assert any(file.suffix == ".wandb" for file in left)
    assert {"gcs_server.out", "raylet.out"} <= seen, "Ray had nothing to look at"
    assert leaks == []
    assert [leak for file in left for leak in keys_in(file, keys)] == []

    assert listening, "nothing listened"
    addresses = {address.removeprefix("::ffff:") for address, _ in listening}
    assert addresses <= {"127.0.0.1", "::1"}, listening
    assert 8265 not in {port for _, port in listening}, "Ray's dashboard"


def test_the_command_is_stored_without_keys(monkeypatch):
    key = made_up("old")
    assert secrecy.hide_secrets(f"--x={key}", {}) == "--x=(hidden)"
    assert secrecy.hide_secrets("use hunter22", {"DB_PASSWORD": "hunter22"}) == "use (hidden)"
    assert secrecy.hide_secrets(f"/cache/{key}/x", {}) == f"/cache/{key}/x"
