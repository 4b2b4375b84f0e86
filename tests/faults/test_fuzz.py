"""Mutated files and command lines: an exit code, one line, nothing written outside the session.

The command line runs in this process and stops before a search would start. The cases are the same in every
run: seventy in `make test`, eight times as many in `make soak`, 70,000 others with --soak, which
prints their seed.
"""

import copy
import io
import itertools
import json
import os
import random
import shutil
import string
import sys
import tempfile
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path

import hypothesis
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir

from autotune import __main__ as tuner
from autotune.system import scratch, telemetry
from autotune.system.telemetry import Hardware
from r2gen import __main__ as trainer
from r2gen import synthetic
from tests.faults.sessions import run_no_trials

pytestmark = pytest.mark.timeout(6 * 3600)

FEW = {"spaces": 15, "baselines": 15, "annotations": 15, "command lines": 15, "sessions": 10}
CASES = {"spaces": 150, "baselines": 125, "annotations": 100, "command lines": 150, "sessions": 60}
SOAK_CASES = {
    "spaces": 15000,
    "baselines": 12000,
    "annotations": 9600,
    "command lines": 14000,
    "sessions": 20000,
}
LONGEST_LINE = 2100
HOSTILE = "\x1b[2J\r\n\x07 [red]\u202e [/x] \udcff"
HARDWARE = Hardware(cpus=4, host_memory_bytes=2**33, gpus=(), driver=None)

writes = None  # if a list, collects every path that this process writes, creates, moves or removes


def watch(event, arguments):
    if writes is None:
        return
    if event == "open" and isinstance(arguments[0], str | bytes):
        flags = arguments[2]
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            writes.append(os.fsdecode(arguments[0]))
    elif event in {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.truncate"}:
        writes.extend(os.fsdecode(a) for a in arguments[:2] if isinstance(a, str | bytes))


sys.addaudithook(watch)


@contextmanager
def watched():
    """Collects the paths written during the block."""
    global writes  # noqa: PLW0603 - a hook cannot be taken back
    writes = found = []
    try:
        yield found
    finally:
        writes = None


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return synthetic.make(tmp_path_factory.mktemp("data"), {"train": 3, "val": 2, "test": 2}, seed=0, size=32)


@pytest.fixture(scope="module", autouse=True)
def _own_home(tmp_path_factory):
    """Keeps Hypothesis's tables out of the working directory."""
    set_hypothesis_home_dir(tmp_path_factory.mktemp("hypothesis"))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Changes into an empty directory, deep enough that `..` stays inside the test's own."""
    place = tmp_path / "a" / "b" / "c"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    run_no_trials(monkeypatch, HARDWARE)
    monkeypatch.setattr(scratch, "private", nullcontext)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.setattr(scratch, "end_orphans", lambda: None)
    monkeypatch.setattr(telemetry, "hardware", lambda: HARDWARE)
    monkeypatch.setattr("r2gen.train.fit", lambda *_: (record for record in ()))
    return place


@pytest.fixture(params=[FEW, pytest.param(CASES, marks=pytest.mark.long)], ids=["few", "all"])
def fuzz(request, soak):
    """Passes each case that a strategy draws to a check."""
    if soak and request.param is FEW:
        pytest.skip("the other run has more")

    def run(kind, strategy, check):
        wanted, seed = (SOAK_CASES if soak else request.param)[kind], random.SystemRandom().getrandbits(32)
        count = itertools.count()

        def one(case):
            next(count)
            check(case)

        test = given(strategy)(one)
        test = settings(
            max_examples=wanted,
            derandomize=not soak,
            database=None,
            suppress_health_check=list(HealthCheck),
        )(test)
        if soak:
            print(f"{kind}: {wanted} cases, seed {seed}")
            test = hypothesis.seed(seed)(test)
        test()
        assert next(count) >= wanted

    return run


def say(main, arguments, codes=frozenset({0, 2})):
    """Returns the exit code of a command line, and its output; fails unless that is a single line."""
    out, err = io.StringIO(), io.StringIO()
    tempfile.gettempdir()  # writes a file there if nobody has asked since it was last forgotten
    with watched() as written, redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
    said = err.getvalue()
    assert code in codes, (code, said)
    if code == 2:
        assert said.count("\n") == 1, said
        assert said.startswith(("autotune: ", "r2gen: ")), said
        assert said[:-1].isprintable(), said
        assert len(said) <= LONGEST_LINE, len(said)
        assert "Traceback" not in said
    return code, said, written


def stays_in(written, *places):
    """Returns True if all `written` paths are in `places` or the tests' cache."""
    allowed = [Path(os.path.realpath(p)) for p in (*places, os.environ["XDG_CACHE_HOME"], os.devnull)]
    return all(any(Path(os.path.realpath(w)).is_relative_to(p) for p in allowed) for w in written)


TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            *(
                "",
                "~",
                "off",
                "1e999",
                "1e-999",
                "1.2.3e4",
                "2026-99-99",
                "0x" + "f" * 5000,
                "9" * 400,
                "9" * 5000,
                "0o17",
                "None",
            ),
            *(
                "sqrt",
                "fp32",
                "true",
                HOSTILE[:-1],
                "x" * 5000,
                "../../etc/passwd",
                "/etc/passwd",
                "a\0b",
                "-",
            ),
        ]
    ),
)
NUMBERS = st.one_of(
    st.integers(-3, 70),
    st.integers(),
    st.floats(),
    st.sampled_from([0, -1, 2**31, 2**53 + 1, 2**63, 10**30, 10**400, 1e308, -1e308, 5e-324, 1e-320]),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=6,
)


def places_in(values, path=()):
    """Yields the path of every value in nested mappings and lists."""
    items = (
        values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    )
    for key, value in items:
        yield (*path, key)
        yield from places_in(value, (*path, key))


def mutated(draw, values, junk):
    """Draws `values` with one to three parts replaced, removed, extended or renamed."""
    values = copy.deepcopy(values)
    for _ in range(draw(st.integers(1, 3))):
        found = list(places_in(values))
        if not found:
            return values
        *path, last = draw(st.sampled_from(found))
        inside = values
        for key in path:
            inside = inside[key]
        match draw(st.sampled_from(["replace", "replace", "remove", "add", "rename"])):
            case "replace":
                inside[last] = draw(junk)
            case "remove":
                del inside[last]
            case "add" if isinstance(inside, dict):
                inside[draw(TEXTS)] = draw(junk)
            case "rename" if isinstance(inside, dict):
                inside[draw(st.one_of(TEXTS, NUMBERS))] = inside.pop(last)
    return values


def spoilt(draw, text):
    """Draws `text` with a part replaced with junk."""
    first = draw(st.integers(0, len(text)))
    last = draw(st.integers(first, min(len(text), first + 20)))
    other = st.sampled_from(
        [
            *"{}[]:,&*!|>'\"%@`#\t\n-?~",
            "!!python/name:os.system",
            "&a [*a]",
            "!!timestamp x",
            "!!set {a, b}",
            "!!binary aGk=",
            "2026-01-01",
        ]
    )
    return text[:first] + draw(st.one_of(other, st.text(max_size=3))) + text[last:]


def as_yaml(draw, values):
    """Draws a YAML file of `values`; one in four is damaged."""
    text = yaml.safe_dump(values)
    return spoilt(draw, text) if draw(st.integers(0, 3)) == 0 else text


TINY = {
    "visual_extractor": "small",
    "image_size": 64,
    "d_model": 16,
    "d_ff": 16,
    "num_layers": 1,
    "num_heads": 2,
    "rm_num_heads": 2,
    "num_workers": 0,
    "image_cache_gib": 0,
    "micro_batch_size": 4,
    "accumulation_steps": 1,
    "learning_rate": 0.001,
    "precision": "fp32",
}
SPACES = [
    {
        "workload": "r2gen",
        "baseline": TINY,
        "knobs": {
            "micro_batch_size": {"choice": [4, 8]},
            "num_workers": {"randint": [0, 2]},
            "precision": {"choice": ["fp32", "bf16"]},
            "learning_rate": {"scale": "sqrt", "multiplier": {"loguniform": [0.5, 2.0]}},
        },
        "limits": {"effective_batch_size": [4, 32], "memory_fraction": 0.85},
        "objective": {"speed": "throughput", "quality": "bleu_4", "keep": 0.95, "select": "same-quality"},
        "budget": {"trials": 4, "samples_per_trial": 400, "time": "2h", "repeats": 3, "finalists": 1},
    },
    {
        "workload": "json.tool:main",
        "baseline": {
            "micro_batch_size": 4,
            "rate": 0.5,
            "rate_of_bias": 0.2,
            "seed": 1,
            "learning_rate": 0.1,
            "flag": True,
        },
        "knobs": {
            "rate": {"uniform": [0.1, 0.9]},
            "flag": {"choice": [True, False]},
            "learning_rate": {"scale": "sqrt", "multiplier": {"choice": [0.5, 1.0]}},
        },
        "follow_learning_rate": ["rate_of_bias"],
        "objective": {"quality": "score", "select": "same-quality", "target": 0.5},
    },
]


@st.composite
def space_files(draw):
    return as_yaml(draw, mutated(draw, draw(st.sampled_from(SPACES)), JUNK))


def encoded(text):
    return text.encode("utf-8", "surrogatepass")


def test_spaces(place, fuzz, data):
    def check(text):
        Path("space.yaml").write_bytes(encoded(text))
        arguments = ["search", "--space", "space.yaml", "--session", "s"]
        code, _, written = say(tuner.main, [*arguments, *(("--data", str(data)) if "r2gen" in text else ())])
        assert stays_in(written, "s"), written
        assert Path("s").exists() == (code == 0)
        if code == 0:
            code, said, written = say(tuner.main, ["status", "s"])
            assert (code, written) == (2, []), said
            assert "nothing was run yet" in said, said
            shutil.rmtree("s")
        assert {p.name for p in place.iterdir()} == {"space.yaml"}

    fuzz("spaces", space_files(), check)


ONE_KNOB = yaml.safe_dump({**SPACES[0], "knobs": {"micro_batch_size": {"choice": [4, 8]}}})


@st.composite
def baseline_files(draw):
    return as_yaml(draw, mutated(draw, {**TINY, "data": "data"}, SCALARS if draw(st.booleans()) else JUNK))


def test_baselines_and_configs(place, fuzz, data):
    Path("data").symlink_to(data)
    Path("space.yaml").write_text(ONE_KNOB)

    def check(text):
        Path("mine.yaml").write_bytes(encoded(text))
        code, _, written = say(
            tuner.main,
            [
                "search",
                "--space",
                "space.yaml",
                "--baseline",
                "mine.yaml",
                "--data",
                "data",
                "--session",
                "s",
            ],
        )
        assert stays_in(written, "s"), written
        assert Path("s").exists() == (code == 0)
        shutil.rmtree("s", ignore_errors=True)
        _, _, written = say(trainer.main, ["train", "--config", "mine.yaml", "--workdir", "w"])
        assert stays_in(written, "w"), written
        assert {p.name for p in place.iterdir()} <= {"space.yaml", "mine.yaml", "data", "w"}

    fuzz("baselines", baseline_files(), check)


@st.composite
def annotations(draw, whole):
    text = json.dumps(mutated(draw, whole, JUNK))
    return spoilt(draw, text) if draw(st.integers(0, 3)) == 0 else text, draw(st.booleans())


@pytest.mark.long
def test_annotations(place, fuzz, data):
    root = place.parent / "data"
    root.mkdir()
    (root / "images").symlink_to(data / "images")
    whole = json.loads((data / "annotation.json").read_text())
    Path("space.yaml").write_text(ONE_KNOB)
    arguments = ["search", "--space", "space.yaml", "--data", str(root), "--session", "s"]

    def check(case):
        text, skips = case
        (root / "annotation.json").write_bytes(encoded(text))
        code, _, written = say(tuner.main, [*arguments, *(["--skip-bad-samples"] if skips else [])])
        assert stays_in(written, "s"), written
        assert Path("s").exists() == (code == 0)
        shutil.rmtree("s", ignore_errors=True)

    fuzz("annotations", annotations(whole), check)


# An argument cannot contain NUL; bytes that are not UTF-8 arrive as these surrogates.
ARGUMENTS = st.one_of(
    st.text(string.printable, max_size=8),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(
        [
            *(
                "",
                "0",
                "-1",
                "1",
                "nan",
                "inf",
                "-inf",
                "1e999",
                "9" * 400,
                "9" * 5000,
                "2h",
                "3GiB",
                "9" * 400 + "h",
            ),
            *(
                "1" + "0" * 30 + "TiB",
                "x" * 5000,
                HOSTILE,
                "space.yaml",
                "s",
                "../x",
                "mine.yaml",
                ".",
                "..",
                "a/b",
            ),
            *("full", "small", "pareto", "same-quality", "offline", "t.jsonl", "4294967296", "\udcff"),
        ]
    ),
).filter(lambda text: not text.startswith("/") and "~" not in text)
OPTIONS = {
    "search": [
        *("space", "baseline", "model", "trials", "time", "samples", "keep", "select", "target", "finalists"),
        *("repeats", "memory-fraction", "warm-start", "gpus-per-trial", "cpus-per-trial", "memory-limit"),
        *("stall-timeout", "wandb", "address", "seed", "session", "data", "surprise"),
    ],
    "resume": ["trials", "time"],
    "status": ["surprise"],
    "report": ["format", "output"],
    "train": ["workdir"],
    "export": ["output", "trial"],
}


@st.composite
def command_lines(draw):
    command = draw(st.one_of(st.sampled_from(list(OPTIONS)), st.just("search")))
    names = draw(st.lists(st.sampled_from(OPTIONS[command]), max_size=4, unique=True))
    options = [part for name in names for part in (f"--{name}", draw(ARGUMENTS))]
    positional = [] if command == "search" else [draw(ARGUMENTS)]
    stray = [draw(ARGUMENTS)] if draw(st.integers(0, 9)) == 0 else []
    if command == "search" and "space" not in names:
        options += ["--space", "space.yaml"]
    return [command, *positional, *options, *stray]


def test_command_lines(place, fuzz, data, tmp_path):
    files = {"space.yaml": yaml.safe_dump(SPACES[1]), "mine.yaml": yaml.safe_dump({"rate": 0.3})}

    def check(arguments):
        shutil.rmtree(tmp_path / "a")
        place.mkdir(parents=True)
        os.chdir(place)
        for name, text in files.items():
            Path(name).write_text(text)
        _, _, written = say(tuner.main, arguments)
        assert stays_in(written, tmp_path / "a", tmp_path / "scratch"), written

    fuzz("command lines", command_lines(), check)


DIGITS, LONG = "9" * 5000, "x" * 5000


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ("!!set {a, b}", "got !!set, which quotes turn into text, in line 2, column 10"),
        ('"a\\0b"', "text may not hold the character NUL, in line 2, column 10"),
        ("!!binary aGk=", "got !!binary"),
        ("2026-01-01", "got !!timestamp"),
        (
            "1\n  learning_rate: 0o17",
            "learning_rate must be a number other than 0 to be followed, got '0o17'",
        ),
    ],
)
def test_an_invalid_setting_is_refused_in_one_line(place, extra, said):
    knobs = {name: knob for name, knob in SPACES[1]["knobs"].items() if name != "learning_rate"}
    baseline = {name: value for name, value in SPACES[1]["baseline"].items() if name != "learning_rate"}
    text = yaml.safe_dump({**SPACES[1], "baseline": baseline, "knobs": knobs})
    Path("space.yaml").write_text(text.replace("baseline:", f"baseline:\n  extra: {extra}"))
    assert said in say(tuner.main, ["search", "--space", "space.yaml", "--session", "s"], {2})[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["search", "--space", "space.yaml", "--samples", DIGITS],
            "--samples: must be a whole number above 0, or auto",
        ),
        (["search", "--space", "space.yaml", "--session", "s\udcff"], "Ray needs a path in UTF-8"),
        (["report", LONG], "File name too long"),
        (["init", "-o", LONG, "--", "python", "x.py"], "File name too long"),
        (["status", "loop"], "Symlink loop"),
    ],
)
def test_an_impossible_path_or_number_is_refused_in_one_line(place, arguments, said):
    Path("loop").symlink_to("loop")
    Path("space.yaml").write_text(yaml.safe_dump(SPACES[1]))
    assert said in say(tuner.main, arguments, {2})[1]
    assert not Path("runs").exists()
